/* The order and dtype in which the kernels of batch norm and group norm read inputs and write results.
 *
 * Circle: norm, norm_storage: the kernels open their tensors here, by the sizes that their loops take. */
#pragma once

#include "cpu/reduce/norm.h"

struct ah_tensor;

/* `last`: channels-last. `rows`: as rows of channels, which planes of one pixel are too; else as planes. `dtype`: the
 * tensor's where the loops read it as it is (bfloat16; planes of float16), else the one that is computed in. */
struct ah_norm_storage {
    bool last, rows;
    enum ah_dtype dtype;
};

/* Return the sizes of (N, C, ...). */
struct ah_batch ah_batch_of(const struct ah_tensor *t);

/* Return the storage of x, or of a gradient (NULL: none) and x in one order: channels-last if both are. */
struct ah_norm_storage ah_norm_storage(const struct ah_tensor *x, const struct ah_tensor *gradient);
const void *ah_norm_open(struct ah_arrays *a, struct ah_tensor *t, const struct ah_norm_storage *s);

/* For a result: the caller sets its storage's channels_last to `last` after the call. */
void *ah_norm_out_open(struct ah_arrays *a, struct ah_tensor *out, const struct ah_norm_storage *s);
