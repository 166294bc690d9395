/* The maximum of numbers and the sum of the exponentials below it, kept together while the maximum grows. */
#ifndef AH_CUDA_TAIL_CUH
#define AH_CUDA_TAIL_CUH

#include "cuda/kernels/block.cuh"
#include "cuda/kernels/reals.cuh"

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

#endif
