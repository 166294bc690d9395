/* Functions that activations and their gradients share. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

#define AH_SQRT_2_OVER_PI 0.79788456080286535588
#define AH_SQRT_HALF 0.70710678118654752440
#define AH_INV_SQRT_2PI 0.39894228040143267794

template <typename T> __device__ __forceinline__ T ah_sigmoid(T x)
{
    return T(1) / (T(1) + exp(-x));
}

template <typename T> __device__ __forceinline__ T ah_gelu_tanh(T x)
{
    return T(0.5) * x * (T(1) + tanh(T(AH_SQRT_2_OVER_PI) * (x + T(0.044715) * x * x * x)));
}

template <typename T> __device__ __forceinline__ T ah_gelu_erf_slope(T x)
{
    return T(0.5) * (T(1) + erf(x * T(AH_SQRT_HALF))) + x * exp(T(-0.5) * x * x) * T(AH_INV_SQRT_2PI);
}

template <typename T> __device__ __forceinline__ T ah_gelu_tanh_slope(T x)
{
    const T t = tanh(T(AH_SQRT_2_OVER_PI) * (x + T(0.044715) * x * x * x));
    const T du = T(AH_SQRT_2_OVER_PI) * (T(1) + T(0.134145) * x * x);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * du;
}

template <typename T> __device__ __forceinline__ T ah_silu_slope(T x)
{
    const T s = ah_sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
}
