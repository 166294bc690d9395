/* The elements of a tensor as one contiguous run: its own memory, or a packed copy that is written back. */
#pragma once

#include "tensor/tensor.h"

struct ah_piece {
    struct ah_tensor *tensor; /* borrowed; NULL: nothing is open */
    struct ah_tensor *packed; /* owned; NULL where the tensor is contiguous */
    void *data;
    bool writes;
};

/* `writes`: the elements will be changed. */
int ah_piece_open(struct ah_piece *piece, struct ah_tensor *tensor, bool writes);

/* Copy changed elements back and count an in-place write, unless `failed`, then free the copy. A piece that is not open
 * may be closed. */
int ah_piece_close(struct ah_piece *piece, bool failed);
