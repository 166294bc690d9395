/* Search for elements that an op has to refuse. The device is waited for: the answer decides the next step. */
#pragma once

#include "cuda/driver/stream/launch.h"
#include "tensor/tensor.h"

/* The least flat index of a 0 in a row-major tensor of integers; *at stays as it is when there is none. */
int ah_cuda_find_zero(struct ah_device *device, const char *op_name, const struct ah_tensor *tensor, int64_t *at);

/* The same of an element outside low..high-1, and its value. */
int ah_cuda_find_outside(struct ah_device *device, const char *op_name, const struct ah_tensor *tensor, int64_t low,
                         int64_t high, int64_t *at, int64_t *value);
