/* Launching kernels that draw random numbers: as many threads as PyTorch has, each with its own sequence. */
#pragma once

#include "cuda/driver/stream/philox.h"
#include "cuda/ops/lib/elementwise.h"

/* Blocks of 256 threads over n > 0 elements: no more than the card runs at once. */
unsigned ah_cuda_random_blocks(const struct ah_cuda_device *cuda, int64_t n);

/* Fill `out` by exponential numbers of rate 1. */
int ah_cuda_fill_exponential(struct ah_call *call, struct ah_tensor *out);
/* Fill a dense int32 or int64 tensor by draws modulo 2^32 - 1 or 2^64 - 1, of which the bits of `mask` stay. */
int ah_cuda_fill_keys(struct ah_call *call, struct ah_tensor *keys, uint64_t mask);
