/* Counting whole numbers by atomics on integers, whose order does not matter; places among sorted numbers. */
#include "cuda/kernels/index/count.h"
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/reduce/reduce.cuh"

typedef unsigned long long counter;

AH_KERNEL(count_range, ah_count_args, AH_COUNT_THREADS)
{
    AH_SHARED_ARRAY(counter, shared, AH_COUNT_THREADS / 32);
    ah_count_range *range = ah_at<ah_count_range>(a.range);
    counter most = 0, refused = ~(counter)0;
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step()) {
        const int64_t x = ah_at<const int64_t>(a.x)[i];
        if (x < 0 || x == INT64_MAX)
            refused = (counter)i < refused ? (counter)i : refused;
        else
            most = (counter)x > most ? (counter)x : most;
    }
    most = ah_block_fold(most, ah_larger(), shared);
    refused = ah_block_fold(refused, [](counter x, counter y) { return x < y ? x : y; }, shared);
    if (threadIdx.x == 0) {
        atomicMax(reinterpret_cast<counter *>(&range->most), most);
        atomicMin(reinterpret_cast<counter *>(&range->refused), refused);
    }
}

AH_KERNEL(count_few, ah_count_args, AH_COUNT_THREADS)
{
    AH_SHARED_ARRAY(unsigned, count, AH_COUNT_SHARED);
    for (int64_t bin = threadIdx.x; bin < a.bins; bin += AH_COUNT_THREADS)
        count[bin] = 0;
    __syncthreads();
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step())
        atomicAdd(&count[ah_at<const int64_t>(a.x)[i]], 1u);
    __syncthreads();
    for (int64_t bin = threadIdx.x; bin < a.bins; bin += AH_COUNT_THREADS)
        if (count[bin])
            atomicAdd(ah_at<counter>(a.counts) + bin, (counter)count[bin]);
}

AH_KERNEL(count_many, ah_count_args, AH_COUNT_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step())
        atomicAdd(ah_at<counter>(a.counts) + ah_at<const int64_t>(a.x)[i], (counter)1);
}

/* An element of any dtype as T. */
template <typename T> __device__ __forceinline__ T as(uint64_t base, int dtype, int64_t at)
{
    if (dtype == AH_F16 || dtype == AH_BF16 || dtype == AH_F32 || dtype == AH_F64)
        return (T)ah_load_any<double>(base, dtype, at);
    return (T)ah_load_any<int64_t>(base, dtype, at);
}

template <typename T> __device__ __forceinline__ int64_t place(const ah_search_sorted_args &a, int64_t i)
{
    const T value = as<T>(a.x, a.dtype, i);
    const int64_t row = a.one_row ? 0 : i / a.per_row * a.edge_count;
    int64_t low = 0, high = a.edge_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const T edge = as<T>(a.edges, a.edge_dtype, row + middle);
        if (a.right ? !(edge > value) : !(edge >= value))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

AH_KERNEL(search_sorted, ah_search_sorted_args, AH_COUNT_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step()) {
        const int64_t at = a.by_double ? place<double>(a, i) : place<int64_t>(a, i);
        if (a.narrow)
            ah_at<int32_t>(a.to)[i] = (int32_t)at;
        else
            ah_at<int64_t>(a.to)[i] = at;
    }
}
