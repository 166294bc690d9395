/* The four real types of kernels: float32 and float64 are computed in themselves, the halves in float. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

/* The type in which a T is computed. */
template <typename T> struct ah_real_of {
    typedef float type;
};
template <> struct ah_real_of<double> {
    typedef double type;
};
template <typename T> using ah_real = typename ah_real_of<T>::type;

template <typename T> __device__ __forceinline__ ah_real<T> ah_get(T x)
{
    return to_float(x);
}
template <> __device__ __forceinline__ double ah_get<double>(double x)
{
    return x;
}

template <typename T> __device__ __forceinline__ T ah_put(ah_real<T> x)
{
    return from_float<T>(x);
}
template <> __device__ __forceinline__ double ah_put<double>(double x)
{
    return x;
}

/* An address of a struct of arguments as a pointer; 0 is NULL. */
template <typename T> __device__ __forceinline__ T *ah_at(uint64_t address)
{
    return reinterpret_cast<T *>(address);
}

/* Up to ah_pack<T>::count elements from p, as numbers: in one access where `wide` (p is a multiple of 16 and all of
 * them are there), else the `count` that are; the others stay as they were. */
template <typename T>
__device__ __forceinline__ void ah_get_pack(ah_real<T> *x, const T *p, bool wide, int64_t count)
{
    constexpr int N = ah_pack<T>::count;
    if (wide) {
        const ah_pack<T> pack = ah_load16(p);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            x[j] = ah_get(pack.at[j]);
    } else {
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (j < count)
                x[j] = ah_get(p[j]);
    }
}

template <typename T>
__device__ __forceinline__ void ah_put_pack(T *p, const ah_real<T> *x, bool wide, int64_t count)
{
    constexpr int N = ah_pack<T>::count;
    if (wide) {
        ah_pack<T> pack;
        AH_UNROLL
        for (int j = 0; j < N; j++)
            pack.at[j] = ah_put<T>(x[j]);
        ah_store16(p, pack);
    } else {
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (j < count)
                p[j] = ah_put<T>(x[j]);
    }
}

__device__ __forceinline__ float ah_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
__device__ __forceinline__ double ah_fma(double a, double b, double c)
{
    return fma(a, b, c);
}
__device__ __forceinline__ float ah_sqrt(float x)
{
    return sqrtf(x);
}
__device__ __forceinline__ double ah_sqrt(double x)
{
    return sqrt(x);
}

__device__ __forceinline__ float ah_exp(float x)
{
    return expf(x);
}
__device__ __forceinline__ double ah_exp(double x)
{
    return exp(x);
}
__device__ __forceinline__ float ah_log(float x)
{
    return logf(x);
}
__device__ __forceinline__ double ah_log(double x)
{
    return log(x);
}

/* MAKE(suffix, type) for each. */
#define AH_FOR_REALS(MAKE) MAKE(f16, half_t) MAKE(bf16, bf16_t) MAKE(f32, float) MAKE(f64, double)
