/* Binary cross entropy of a probability, whose logarithms are cut at -100, and of a logit, without overflow: a is the
 * prediction, b the target, c the weight of positive targets. */
#include "cuda/kernels/lib/elementwise.cuh"

template <typename T> __device__ __forceinline__ T cut_log(T x)
{
    const T value = log(x);
    return value < T(-100) ? T(-100) : value;
}

template <typename T> __device__ __forceinline__ T softplus_of_minus(T x)
{
    return log1p(exp(x < 0 ? x : -x)) + (x < 0 ? -x : T(0));
}

AH_EW2_FLOATS(probability_nll, (b - T(1)) * cut_log(T(1) - a) - b * cut_log(a))
AH_EW2_FLOATS(logit_nll, (T(1) - b) * a + softplus_of_minus(a))
AH_EW3_FLOATS(logit_nll_weighted, (T(1) - b) * a + (T(1) + (c - T(1)) * b) * softplus_of_minus(a))
