/* The maximum of numbers and the sum of the exponentials below it, kept together while the maximum grows. */
#ifndef AH_CUDA_TAIL_CUH
#define AH_CUDA_TAIL_CUH

#include "cuda/kernels/rows.cuh"

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
};

template <typename R, typename ROWS>
__device__ __forceinline__ ah_tail<R> ah_folded(const ROWS &rows, const ah_tail<R> &own)
{
    const R m = rows.fold(own.m, [](R a, R b) { return a > b ? a : b; });
    const R sum = rows.fold(own.m == m ? own.sum : own.sum * ah_exp(own.m - m), ah_add());
    return {m, sum};
}

/* The tail of a row of n scores, of which a number is what score(number, place) makes of it. */
template <typename T, typename ROWS, typename F>
__device__ __forceinline__ ah_tail<ah_real<T>> ah_row_tail(const ROWS &rows, const T *x, int64_t n, bool wide, F score)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    ah_tail<R> own = {(R)-INFINITY, 0};
    ah_each_pack<T, ROWS>(n, wide, [&](int64_t i, int64_t left, bool full) {
        R v[N] = {0};
        ah_get_pack(v, x + i, full, left);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (j < left)
                own.add(score(v[j], i + j));
    });
    return ah_folded(rows, own);
}

#endif
