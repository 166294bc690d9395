/* Numbers of a thread's Philox stream, as cuRAND makes them of its words, and numbers computed from them. It has fma
 * where nvcc fuses a product and a sum of PyTorch. */
#pragma once

#include "cuda/kernels/lib/elementwise.cuh"
#include "cuda/kernels/lib/fast.cuh"
#include "cuda/kernels/lib/philox.cuh"
#include "cuda/kernels/random/random.h"

/* (0, 1] from a word. */
__device__ __forceinline__ float ah_share_of(uint32_t x)
{
    return static_cast<float>(x) * 0x1p-32f + 0x1p-33f;
}

/* (0, 1] from two. */
__device__ __forceinline__ double ah_share_of(uint32_t x, uint32_t y)
{
    const uint64_t bits = static_cast<uint64_t>(x) ^ static_cast<uint64_t>(y) << 21;
    return static_cast<double>(bits) * 0x1p-53 + 0x1p-54;
}

/* Each of these computes the numbers of one group of four words. */
template <typename T> struct ah_uniform;
template <> struct ah_uniform<float> {
    static constexpr int count = 4;
    __device__ __forceinline__ void operator()(const uint4 &w, float (&v)[4]) const
    {
        v[0] = ah_share_of(w.x);
        v[1] = ah_share_of(w.y);
        v[2] = ah_share_of(w.z);
        v[3] = ah_share_of(w.w);
    }
};
template <> struct ah_uniform<double> {
    static constexpr int count = 2;
    __device__ __forceinline__ void operator()(const uint4 &w, double (&v)[2]) const
    {
        v[0] = ah_share_of(w.x, w.y);
        v[1] = ah_share_of(w.z, w.w);
    }
};

/* Box and Muller. */
template <typename T> struct ah_normal;
template <> struct ah_normal<float> {
    static constexpr int count = 4;
    static __device__ __forceinline__ void pair(uint32_t x, uint32_t y, float &a, float &b)
    {
        const float turn = 6.2831855f * 0x1p-32f; /* 2 pi / 2^32 */
        const float radius = sqrtf(-2.0f * logf(ah_share_of(x)));
        ah_fast_sincos(fmaf(static_cast<float>(y), turn, turn / 2), &a, &b);
        a *= radius;
        b *= radius;
    }
    __device__ __forceinline__ void operator()(const uint4 &w, float (&v)[4]) const
    {
        pair(w.x, w.y, v[0], v[1]);
        pair(w.z, w.w, v[2], v[3]);
    }
};
template <> struct ah_normal<double> {
    static constexpr int count = 2;
    __device__ __forceinline__ void operator()(const uint4 &w, double (&v)[2]) const
    {
        const uint64_t bits = static_cast<uint64_t>(w.z) ^ static_cast<uint64_t>(w.w) << 21;
        const double radius = sqrt(-2.0 * log(ah_share_of(w.x, w.y)));
        ah_sincospi(fma(static_cast<double>(bits), 0x1p-52, 0x1p-53), &v[0], &v[1]);
        v[0] *= radius;
        v[1] *= radius;
    }
};

template <typename T> struct ah_words;
template <> struct ah_words<uint32_t> {
    static constexpr int count = 4;
    __device__ __forceinline__ void operator()(const uint4 &w, uint32_t (&v)[4]) const
    {
        v[0] = w.x;
        v[1] = w.y;
        v[2] = w.z;
        v[3] = w.w;
    }
};
template <> struct ah_words<uint64_t> {
    static constexpr int count = 2;
    __device__ __forceinline__ void operator()(const uint4 &w, uint64_t (&v)[2]) const
    {
        v[0] = static_cast<uint64_t>(w.x) << 32 | w.y;
        v[1] = static_cast<uint64_t>(w.z) << 32 | w.w;
    }
};

/* A value as an element of any dtype. */
template <typename V> __device__ __forceinline__ void ah_write_any(const ah_ew_operand &o, int64_t at, V value)
{
    switch (o.dtype) {
    case AH_BOOL: reinterpret_cast<uint8_t *>(o.at)[at] = value != V(0); break;
    case AH_U8: reinterpret_cast<uint8_t *>(o.at)[at] = static_cast<uint8_t>(value); break;
    case AH_I32: reinterpret_cast<int32_t *>(o.at)[at] = static_cast<int32_t>(value); break;
    case AH_I64: reinterpret_cast<int64_t *>(o.at)[at] = static_cast<int64_t>(value); break;
    case AH_F16: reinterpret_cast<half_t *>(o.at)[at] = from_float<half_t>(static_cast<float>(value)); break;
    case AH_BF16: reinterpret_cast<bf16_t *>(o.at)[at] = from_float<bf16_t>(static_cast<float>(value)); break;
    case AH_F32: reinterpret_cast<float *>(o.at)[at] = static_cast<float>(value); break;
    default: reinterpret_cast<double *>(o.at)[at] = static_cast<double>(value); break;
    }
}

/* A float as the dtype holds it. */
__device__ __forceinline__ float ah_as_held(float x, int32_t dtype)
{
    return dtype == AH_F16 ? to_float(from_float<half_t>(x)) : dtype == AH_BF16 ? to_float(from_float<bf16_t>(x)) : x;
}

/* Fill the output: a thread uses the numbers of a group for elements one grid apart, as PyTorch does. */
template <class SOURCE, typename T, class OP> __device__ __forceinline__ void ah_random(const ah_random_args &a, OP op)
{
    constexpr int N = SOURCE::count;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    ah_philox stream = ah_philox_open(a.place, static_cast<uint64_t>(thread));
    for (int64_t first = thread; first < a.iter.numel; first += threads * N) {
        T v[N];
        SOURCE()(stream.next(), v);
        AH_UNROLL
        for (int k = 0; k < N; k++) {
            const int64_t i = first + k * threads;
            if (i < a.iter.numel) {
                int64_t at[1];
                ah_locate<1>(a.iter, i, at);
                ah_write_any(a.iter.operand[0], at[0], op(v[k]));
            }
        }
    }
}
