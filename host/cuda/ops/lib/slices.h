/* The lines of a tensor along one dim, laid out one after another. */
#pragma once

#include "tensor/tensor.h"

/* The layout of a dim in a row-major tensor: `outer` blocks of `n` rows of `inner` elements; of 0 dims one of each. */
struct ah_cuda_extent {
    int64_t outer, n, inner;
};
struct ah_cuda_extent ah_cuda_extent(const struct ah_tensor *tensor, int dim);

/* The same memory with this dim last; the tensor itself, retained, where it is. */
int ah_cuda_turned(struct ah_tensor **out, struct ah_tensor *tensor, int dim);

/* A row-major tensor of this dtype with the dim last: its lines. */
int ah_cuda_slices(struct ah_device *device, struct ah_tensor **out, struct ah_tensor *tensor, int dim,
                   enum ah_dtype dtype);

/* Room for the lines of `out`: `out` itself, retained, where its lines are consecutive in this dtype. Once they are
 * written, ah_cuda_slices_close copies them to it and releases the room, unless `status` is a failure; it returns the
 * first error. */
int ah_cuda_slices_open(struct ah_device *device, struct ah_tensor **room, struct ah_tensor *out, int dim,
                        enum ah_dtype dtype);
int ah_cuda_slices_close(struct ah_device *device, struct ah_tensor *room, struct ah_tensor *out, int dim, int status);
