/* A strided loop of a thread over `total` items, counted in the type I: int32_t where counts fit (divisions of indices
 * are then cheap), else int64_t. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

#define AH_EACH(I, i, total)                                                                        \
    for (I i = (I)blockIdx.x * (I)blockDim.x + (I)threadIdx.x, i##_step = (I)gridDim.x * (I)blockDim.x, \
           i##_end = (I)(total);                                                                    \
         i < i##_end; i += i##_step)

/* The first of the items that a thread of the grid processes, and how far apart they are. */
static __device__ __forceinline__ int64_t ah_first_item()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t ah_item_step()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* The quotient rounded up, of a number that may be negative; divisors are positive. */
template <typename I> __device__ __forceinline__ I ah_ceil_div(I a, I b)
{
    return a > 0 ? (a - 1) / b + 1 : -(-a / b);
}
template <typename I> __device__ __forceinline__ I ah_clip(I x, I low, I high)
{
    return x < low ? low : x > high ? high : x;
}
