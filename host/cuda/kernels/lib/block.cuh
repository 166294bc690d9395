/* Sums and maxima over the threads of a warp and of a block, in an order that depends on nothing but the count of
 * threads: every thread gets the result. All threads of the block (of the warp) must call. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

struct ah_add {
    template <typename T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

/* NaN wins. */
struct ah_larger {
    template <typename T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a > b || a != a ? a : b;
    }
};

template <typename T, typename F> __device__ __forceinline__ T ah_warp_fold(T x, F fold)
{
    AH_UNROLL
    for (int by = 16; by > 0; by /= 2)
        x = fold(x, __shfl_xor_sync(0xffffffff, x, by));
    return x;
}

/* `shared` has room for a value of each warp. Blocks are of whole warps. */
template <typename T, typename F> __device__ __forceinline__ T ah_block_fold(T x, F fold, T *shared)
{
    const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32;
    x = ah_warp_fold(x, fold);
    if (warps == 1)
        return x;
    __syncthreads(); /* who used `shared` before has read it */
    if (threadIdx.x % 32 == 0)
        shared[warp] = x;
    __syncthreads();
    x = shared[0];
    for (unsigned i = 1; i < warps; i++)
        x = fold(x, shared[i]);
    return x;
}
