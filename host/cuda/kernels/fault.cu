/* Looking for elements outside a range. One block looks through them all, so that the first one is told whatever the
 * order of threads; a fault that was found before stays. */
#include "cuda/kernels/fault.h"
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/reals.cuh"

#define NOWHERE (~0ull)

/* The least index of this block's threads; every thread gets it. Mostly there is none. */
static __device__ __forceinline__ unsigned long long first_of(unsigned long long at, unsigned long long *shared)
{
    if (!__syncthreads_or(at != NOWHERE))
        return NOWHERE;
    return ah_block_fold(at, [](unsigned long long a, unsigned long long b) { return a < b ? a : b; }, shared);
}

AH_KERNEL(fault_index, ah_fault_args, AH_FAULT_THREADS)
{
    AH_SHARED_ARRAY(unsigned long long, shared, AH_FAULT_THREADS / 32);
    const int64_t *x = ah_at<const int64_t>(a.x);
    unsigned long long at = NOWHERE;
    for (int64_t i = threadIdx.x; i < a.n && at == NOWHERE; i += blockDim.x)
        if ((x[i] < a.low || x[i] > a.high) && x[i] != a.other)
            at = (unsigned long long)i;
    at = first_of(at, shared);
    ah_fault *fault = ah_at<ah_fault>(a.fault);
    if (threadIdx.x == 0 && at != NOWHERE && fault->ticket == 0) {
        fault->at = (int64_t)at;
        fault->integer = x[at];
        fault->ticket = a.ticket;
    }
}

/* Numbers that are not in 0..high or, where that has no end, not finite. */
template <typename T> __device__ __forceinline__ void fault_share(const ah_fault_args &a, unsigned long long *shared)
{
    const T *x = ah_at<const T>(a.x);
    unsigned long long at = NOWHERE;
    for (int64_t i = threadIdx.x; i < a.n && at == NOWHERE; i += blockDim.x) {
        const ah_real<T> v = ah_get(x[i]);
        const bool right = a.high == INT64_MAX ? v - v == 0 : v <= static_cast<ah_real<T>>(a.high);
        if (!(v >= 0 && right))
            at = (unsigned long long)i;
    }
    at = first_of(at, shared);
    ah_fault *fault = ah_at<ah_fault>(a.fault);
    if (threadIdx.x == 0 && at != NOWHERE && fault->ticket == 0) {
        fault->at = (int64_t)at;
        fault->number = (double)ah_get(x[at]);
        fault->ticket = a.ticket;
    }
}

#define SHARE(suffix, type)                                                         \
    AH_KERNEL(fault_share_##suffix, ah_fault_args, AH_FAULT_THREADS)                \
    {                                                                               \
        AH_SHARED_ARRAY(unsigned long long, shared, AH_FAULT_THREADS / 32);         \
        fault_share<type>(a, shared);                                               \
    }
AH_FOR_REALS(SHARE)
