/* Search for elements outside a range. Each block has its own least position, of which the device keeps the least by an
 * atomic, so that the first one is reported in any order of blocks; the block that ends last then notes
 * the element. A fault that was found before stays. */
#include "cuda/kernels/index/fault.h"
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/reals.cuh"

#define NOWHERE (~0ull)

typedef unsigned long long position;

/* The least position of this block's threads where is_wrong(element); the least of all blocks', and true in one thread,
 * when all blocks have completed and this check was the first to find a fault. */
template <typename T, class F>
__device__ __forceinline__ bool find_first(const ah_fault_args &a, const T *x, F is_wrong, position *shared,
                                           position *first)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    position at = NOWHERE;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n && at == NOWHERE;
         i += AH_FAULT_EACH * step) {
        bool wrong[AH_FAULT_EACH];
        AH_UNROLL
        for (int k = 0; k < AH_FAULT_EACH; k++)
            wrong[k] = i + k * step < a.n && is_wrong(x[i + k * step]);
        AH_UNROLL
        for (int k = AH_FAULT_EACH - 1; k >= 0; k--)
            if (wrong[k])
                at = (position)(i + k * step);
    }
    if (__syncthreads_or(at != NOWHERE)) /* mostly there is none */
        at = ah_block_fold(at, [](position p, position q) { return p < q ? p : q; }, shared);
    if (threadIdx.x != 0)
        return false;
    ah_fault *fault = ah_at<ah_fault>(a.fault);
    position *rest = reinterpret_cast<position *>(&fault->rest), *blocks = reinterpret_cast<position *>(&fault->blocks);
    if (at != NOWHERE && fault->ticket == 0) {
        atomicMax(rest, ~at);
        __threadfence(); /* before the block counts as through */
    }
    if (atomicAdd(blocks, 1ull) + 1 != gridDim.x)
        return false;
    __threadfence();
    *blocks = 0;
    const position found = atomicMax(rest, 0ull);
    *first = ~found;
    return found != 0 && fault->ticket == 0;
}

AH_KERNEL(fault_index, ah_fault_args, AH_FAULT_THREADS)
{
    AH_SHARED_ARRAY(position, shared, AH_FAULT_THREADS / 32);
    const int64_t *x = ah_at<const int64_t>(a.x), low = a.low, high = a.high, other = a.other;
    position first;
    if (find_first(a, x, [=](int64_t v) { return (v < low || v > high) && v != other; }, shared, &first)) {
        ah_fault *fault = ah_at<ah_fault>(a.fault);
        fault->integer = x[first];
        fault->ticket = a.ticket;
    }
}

/* Numbers that are not in 0..high or, where that has no end, not finite. */
template <typename T> __device__ __forceinline__ void fault_share(const ah_fault_args &a, position *shared)
{
    const T *x = ah_at<const T>(a.x);
    const int64_t high = a.high;
    position first;
    const bool found = find_first(a, x, [=](T element) {
        const ah_real<T> v = ah_get(element);
        const bool right = high == INT64_MAX ? v - v == 0 : v <= static_cast<ah_real<T>>(high);
        return !(v >= 0 && right);
    }, shared, &first);
    if (found) {
        ah_fault *fault = ah_at<ah_fault>(a.fault);
        fault->number = (double)ah_get(x[first]);
        fault->ticket = a.ticket;
    }
}

#define SHARE(suffix, type)                                                         \
    AH_KERNEL(fault_share_##suffix, ah_fault_args, AH_FAULT_THREADS)                \
    {                                                                               \
        AH_SHARED_ARRAY(position, shared, AH_FAULT_THREADS / 32);         \
        fault_share<type>(a, shared);                                               \
    }
AH_FOR_REALS(SHARE)
