/* Plain arrays in and out of a kernel.
 *
 * A kernel written for row-major float or double arrays meets strided views and half precision through these two:
 * an input that is already such an array is used as it is, anything else is copied (and halves widened to float) into
 * a scratch block. Lua thread only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/numeric/dtype.h"

struct ah_tensor;

struct ah_dense {
    const void *data; /* NULL for an absent tensor */
    void *block;      /* scratch to free, or NULL */
    size_t bytes;
};

struct ah_dense_out {
    void *data;
    void *block;
    size_t bytes;
    struct ah_tensor *out;
};

/* `tensor` (NULL is allowed) as a row-major array in ah_compute_dtype of its dtype. Rewrites a channels-last storage
 * to row-major first. Zero-initialise *dense, so that closing it is right on every path. */
int ah_dense_open(struct ah_dense *dense, struct ah_tensor *tensor);
void ah_dense_close(struct ah_dense *dense);

/* The same without widening: halves stay bits. */
int ah_dense_open_as_is(struct ah_dense *dense, struct ah_tensor *tensor);

/* An array to fill for the row-major contiguous `out`; closing it stores halves. */
int ah_dense_out_open(struct ah_dense_out *dense, struct ah_tensor *out);
void ah_dense_out_close(struct ah_dense_out *dense);
/* Let it be filled in a scratch block, in float. */
int ah_dense_out_scratch(struct ah_dense_out *dense);

/* `bytes` of scratch from the block allocator, given back by ah_dense_close. */
int ah_dense_scratch(struct ah_dense *dense, size_t bytes);

/* The arrays of a kernel, opened one by one and closed together: zero-initialise it. After a failure `status` is
 * negative and further arrays are NULL, so that the kernel tests it once, before its loops. */
struct ah_arrays {
    int status, ins, outs;
    struct ah_dense in[10];
    struct ah_dense_out out[4];
};
const void *ah_array_in(struct ah_arrays *a, struct ah_tensor *tensor);    /* as ah_dense_open */
const void *ah_array_as_is(struct ah_arrays *a, struct ah_tensor *tensor); /* as ah_dense_open_as_is */
/* Its whole numbers as int64. */
const int64_t *ah_array_ints(struct ah_arrays *a, struct ah_tensor *tensor);
void *ah_array_out(struct ah_arrays *a, struct ah_tensor *out); /* as ah_dense_out_open */
void *ah_array_scratch(struct ah_arrays *a, size_t bytes);
int ah_arrays_close(struct ah_arrays *a); /* returns `status` */

/* Items of any float dtype in row-major order, for loops that convert them a row at a time (cpu/loop/row_items.h);
 * `data` is NULL for an absent tensor. */
struct ah_items {
    void *data;
    enum ah_dtype dtype;
};
struct ah_items ah_items_in(struct ah_arrays *a, struct ah_tensor *tensor); /* as ah_array_as_is */
struct ah_items ah_items_out(struct ah_tensor *out); /* of a row-major contiguous one */

/* Call NAME_f32 or NAME_f64, by the dtype in which one is computed. */
#define AH_BY_REAL(dtype, name, ...) \
    (ah_compute_dtype(dtype) == AH_F32 ? name##_f32(__VA_ARGS__) : name##_f64(__VA_ARGS__))
