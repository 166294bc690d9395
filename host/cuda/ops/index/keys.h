/* Unsigned keys in the order of the values (kernels/index/sort.h). */
#pragma once

#include "tensor/tensor.h"

/* Return the number of bits of a dtype's keys. */
int ah_cuda_key_bits(enum ah_dtype dtype);

/* The keys of all elements of a row-major tensor, `item` (4 or 8) bytes each. */
int ah_cuda_make_keys(struct ah_device *device, const char *op_name, const struct ah_tensor *x, void *keys, int item);
