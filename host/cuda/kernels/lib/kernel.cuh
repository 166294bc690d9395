/* Included by every kernel: the words of the subset of CUDA C++ that kernels are written in (host/cuda/README.md), so
 * that nvcc and, for the simulated GPU, g++ compile the same text.
 *
 *     AH_KERNEL(name, args, threads) { ... a.field ... }   one struct of arguments, by value, called `a`; blocks of at
 *                                                          most `threads`
 *     AH_KERNEL_LARGE(name, args, threads)                 the same, whose threads may have all registers there are
 *     AH_KERNEL_FEW(name, args, threads, large)            one or the other
 *     AH_KERNEL_OF(name, args, threads, function)          a kernel that calls function(a), such as pick<float>
 *     AH_KERNEL_LARGE_OF(name, args, threads, function)
 *     AH_SHARED(type, name);              an object in shared memory; in kernels only, not in functions they call
 *     AH_SHARED_ARRAY(type, name, count);
 *     AH_SHARED_DYNAMIC(type, name);      type *name: the shared memory asked for at the launch; once in a kernel
 *     AH_UNROLL, AH_ROLLED                before a loop, that it be unrolled or not
 *     half_t, bf16_t, to_float(x), from_float<T>(x)        rounding to nearest even
 *     ah_pack<T>, ah_load16(p), ah_store16(p, pack)        16 bytes at once, at a multiple of 16
 *
 * sim/sim.h defines all of these but ah_pack, AH_SHARED_ARRAY, AH_UNROLL and AH_ROLLED for g++. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/numeric/dtype.h"

#define AH_KERNEL_OF(name, args, threads, ...) \
    AH_KERNEL(name, args, threads)             \
    {                                          \
        __VA_ARGS__(a);                        \
    }
#define AH_KERNEL_LARGE_OF(name, args, threads, ...) \
    AH_KERNEL_LARGE(name, args, threads)             \
    {                                                \
        __VA_ARGS__(a);                              \
    }

/* 16 bytes of T. */
template <typename T> struct alignas(16) ah_pack {
    static constexpr int count = 16 / sizeof(T);
    T at[count];
};

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define AH_KERNEL(name, args, threads) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ struct args a)
#define AH_KERNEL_FEW(name, args, threads, large) \
    extern "C" __global__ void __launch_bounds__(threads, (large) ? 1 : 0) name(const __grid_constant__ struct args a)
#define AH_KERNEL_LARGE(name, args, threads) AH_KERNEL_FEW(name, args, threads, true)
#define AH_SHARED(type, name) __shared__ type name
#define AH_SHARED_DYNAMIC(type, name)          \
    extern __shared__ uint4 ah_dynamic_shared[]; \
    type *name = reinterpret_cast<type *>(ah_dynamic_shared)
#define AH_UNROLL _Pragma("unroll")
#define AH_PRAGMA(text) _Pragma(#text)
#define AH_UNROLL_BY(n) AH_PRAGMA(unroll n)
#define AH_ROLLED _Pragma("unroll 1")

typedef __half half_t;
typedef __nv_bfloat16 bf16_t;

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(half_t x)
{
    return __half2float(x);
}
static __device__ __forceinline__ float to_float(bf16_t x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ half_t from_float<half_t>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ bf16_t from_float<bf16_t>(float x)
{
    return __float2bfloat16_rn(x);
}

template <typename T> __device__ __forceinline__ ah_pack<T> ah_load16(const T *p)
{
    const uint4 bits = *reinterpret_cast<const uint4 *>(p);
    ah_pack<T> pack;
    *reinterpret_cast<uint4 *>(&pack) = bits;
    return pack;
}
template <typename T> __device__ __forceinline__ void ah_store16(T *p, const ah_pack<T> &pack)
{
    *reinterpret_cast<uint4 *>(p) = *reinterpret_cast<const uint4 *>(&pack);
}

#else

#include "sim/sim.h"

#define AH_KERNEL_FEW(name, args, threads, large) AH_KERNEL(name, args, threads)
#define AH_KERNEL_LARGE AH_KERNEL
#ifndef AH_UNROLL
#define AH_UNROLL
#define AH_UNROLL_BY(n)
#endif
#define AH_ROLLED

#endif

#define AH_SHARED_ARRAY(type, name, count) \
    typedef type name##_array[count];      \
    AH_SHARED(name##_array, name)
