/* The maximum of numbers and the sum of the exponentials below it, kept together while the maximum grows. */
#pragma once

#include "cuda/kernels/lib/fast.cuh"
#include "cuda/kernels/lib/rows.cuh"

/* exp(x) of x <= 0, as exactly as a T needs it. */
template <typename T> __device__ __forceinline__ ah_real<T> ah_exp_for(ah_real<T> x)
{
    return ah_fast_exp2(x * 1.44269504088896341f);
}
template <> __device__ __forceinline__ float ah_exp_for<float>(float x)
{
    return ah_exp(x);
}
template <> __device__ __forceinline__ double ah_exp_for<double>(double x)
{
    return ah_exp(x);
}

/* The sum of exp(x - m). NaN passes the maximum and reaches the sum. */
template <typename R> struct ah_tail {
    R m, sum;
    __device__ __forceinline__ void add(R x)
    {
        if (x > m) {
            sum = sum * ah_exp(m - x) + (x - x + 1); /* infinity makes a NaN */
            m = x;
        } else if (x != (R)-INFINITY) {
            sum += ah_exp(x - m);
        }
    }
    /* Add N numbers of a T: their maximum first, so that each number costs one exponential and no branch. */
    template <typename T, int N> __device__ __forceinline__ void add(const R (&x)[N])
    {
        R top = m, more = 0;
        AH_UNROLL
        for (int j = 0; j < N; j++)
            top = max(top, x[j]);
        const R base = top == (R)-INFINITY ? (R)0 : top; /* of nothing but -inf the sum is 0 */
        if (top != m)
            sum *= ah_exp_for<T>(m - base);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            more += ah_exp_for<T>(x[j] - base);
        sum += more;
        m = top;
    }
};

template <typename R, typename ROWS>
__device__ __forceinline__ ah_tail<R> ah_folded(const ROWS &rows, const ah_tail<R> &own)
{
    const R m = rows.fold(own.m, [](R a, R b) { return a > b ? a : b; });
    const R sum = rows.fold(own.m == m ? own.sum : own.sum * ah_exp(own.m - m), ah_add());
    return {m, sum};
}

/* The tail of a row of n scores, score(number, place) of each number. */
template <typename T, typename ROWS, typename F>
__device__ __forceinline__ ah_tail<ah_real<T>> ah_row_tail(const ROWS &rows, const T *x, int64_t n, F score)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    ah_tail<R> own = {(R)-INFINITY, 0};
    ah_each_cut<ROWS>(x, n, [&](const ah_cut &cut) {
        R v[N];
        AH_UNROLL
        for (int j = 0; j < N; j++)
            v[j] = (R)-INFINITY;
        ah_get_cut(v, x, cut);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (j >= cut.from && j < cut.to)
                v[j] = score(v[j], cut.at + j);
        own.template add<T>(v);
    });
    return ah_folded(rows, own);
}
