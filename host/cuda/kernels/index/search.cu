/* The least index of an element that is 0, or that is outside bounds. */
#include "cuda/kernels/index/search.h"
#include "cuda/kernels/lib/kernel.cuh"

template <typename T, class F> __device__ void search(const ah_search_args &a, F is_wanted)
{
    const T *at = reinterpret_cast<const T *>(a.at);
    unsigned long long *found = reinterpret_cast<unsigned long long *>(a.found);
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.numel; i += threads)
        if (is_wanted(at[i]))
            atomicMin(found, static_cast<unsigned long long>(i));
}

#define SEARCH(name, T)                                                                             \
    AH_KERNEL(find_zero_##name, ah_search_args, AH_SEARCH_THREADS)                                  \
    {                                                                                               \
        search<T>(a, [](T x) { return x == 0; });                                                   \
    }                                                                                               \
    AH_KERNEL(find_outside_##name, ah_search_args, AH_SEARCH_THREADS)                               \
    {                                                                                               \
        const int64_t low = a.low, high = a.high;                                                   \
        search<T>(a, [low, high](T x) { return static_cast<int64_t>(x) < low || static_cast<int64_t>(x) >= high; }); \
    }
SEARCH(u8, uint8_t)
SEARCH(i32, int32_t)
SEARCH(i64, int64_t)
