/* Sums of floats that are as good as sums in double (an error of about 2^-46), by operations on floats: the rounding
 * error of each addition is added up separately (Knuth's two-sum). Consumer cards add doubles at 1/64 of the rate of
 * floats, and every card converts fewer numbers. Values outside the range of float are added in double. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

/* The rounding error of x + y, which is `sum`. */
__device__ __forceinline__ float ah_rounded_off(float x, float y, float sum)
{
    const float z = sum - x;
    return (x - (sum - z)) + (y - z);
}

struct ah_exact {
    float sum, rest;
    __device__ __forceinline__ void add(float x)
    {
        const float next = sum + x;
        rest += ah_rounded_off(sum, x, next);
        sum = next;
    }
    __device__ __forceinline__ double value() const
    {
        return (double)sum + (double)rest;
    }
    /* Did nothing overflow? Also false of NaN. */
    __device__ __forceinline__ bool holds() const
    {
        return fabsf(sum) <= 3e38f;
    }
    /* And is the sum of squares large enough that none of them that matters was rounded to a subnormal? */
    __device__ __forceinline__ bool holds_squares() const
    {
        return sum >= 1e-28f && sum <= 3e38f;
    }
};

template <int M> __device__ __forceinline__ double ah_exact_sum(const float (&x)[M])
{
    ah_exact all = {x[0], 0};
    AH_UNROLL
    for (int j = 1; j < M; j++)
        all.add(x[j]);
    if (all.holds())
        return all.value();
    double sum = 0;
    AH_UNROLL
    for (int j = 0; j < M; j++)
        sum += (double)x[j];
    return sum;
}

template <int M> __device__ __forceinline__ double ah_exact_squares(const float (&x)[M])
{
    ah_exact all = {0, 0};
    AH_UNROLL
    for (int j = 0; j < M; j++) {
        const float square = x[j] * x[j];
        all.add(square);
        all.rest += fmaf(x[j], x[j], -square);
    }
    if (all.holds_squares())
        return all.value();
    double sum = 0;
    AH_UNROLL
    for (int j = 0; j < M; j++)
        sum += (double)x[j] * (double)x[j];
    return sum;
}

/* The same of doubles. */
template <int M> __device__ __forceinline__ double ah_exact_sum(const double (&x)[M])
{
    double sum = 0;
    AH_UNROLL
    for (int j = 0; j < M; j++)
        sum += x[j];
    return sum;
}
template <int M> __device__ __forceinline__ double ah_exact_squares(const double (&x)[M])
{
    double sum = 0;
    AH_UNROLL
    for (int j = 0; j < M; j++)
        sum += x[j] * x[j];
    return sum;
}
