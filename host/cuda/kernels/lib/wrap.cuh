/* Sums and products of any type; those of int64_t wrap around, as the CPU's do. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

template <typename T> __device__ __forceinline__ T ah_plus(T a, T b)
{
    return a + b;
}
template <> __device__ __forceinline__ int64_t ah_plus<int64_t>(int64_t a, int64_t b)
{
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <typename T> __device__ __forceinline__ T ah_times(T a, T b)
{
    return a * b;
}
template <> __device__ __forceinline__ int64_t ah_times<int64_t>(int64_t a, int64_t b)
{
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
