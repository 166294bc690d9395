/* The places where a mask is true: their number before each tile of it, and in all. */
#pragma once

#include "ops/dispatch/op.h"

struct ah_cuda_nonzeros {
    struct ah_tensor *mask;    /* row-major bool */
    struct ah_tensor *offsets; /* int64 on the device; its last is the number of places */
};

/* Count the places of a mask, of which it keeps a reference. Release it in any case. */
int ah_cuda_nonzeros_find(struct ah_device *device, const char *op_name, struct ah_tensor *mask,
                          struct ah_cuda_nonzeros *out);
void ah_cuda_nonzeros_release(struct ah_cuda_nonzeros *places);

/* Wait for the number of places. */
int ah_cuda_nonzeros_count(struct ah_device *device, const struct ah_cuda_nonzeros *places, int64_t *count);

/* Write the coordinates of the places to int64 [count, ndim] (ndim 0: of a flat mask, [count]). */
int ah_cuda_nonzeros_write(struct ah_device *device, const char *op_name, const struct ah_cuda_nonzeros *places,
                           struct ah_tensor *to, bool flat);
