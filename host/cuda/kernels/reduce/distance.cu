/* Distances of all pairs of rows: a block has the pairs of two tiles of rows, which pass through shared memory. A row's
 * gradient is one thread's for each element, which walks all other rows. */
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/reduce/distance.h"

/* The position of the pair (i, j), i < j. */
static __device__ __forceinline__ int64_t pair_at(int64_t n, int64_t i, int64_t j)
{
    return i * (2 * n - i - 1) / 2 - i - 1 + j;
}

template <typename R> __device__ __forceinline__ R add_term(int norm, double p, R d, R sum)
{
    const R size = d < 0 ? -d : d;
    switch (norm) {
    case AH_DISTANCE_COUNT: return sum + (R)(d != 0);
    case AH_DISTANCE_ABSOLUTE: return sum + size;
    case AH_DISTANCE_SQUARE: return sum + d * d;
    case AH_DISTANCE_LARGEST: return size > sum || d != d ? size : sum;
    default: return sum + (R)pow((double)size, p);
    }
}

template <typename R> struct tile {
    R at[AH_DISTANCE_TILE][AH_DISTANCE_WIDTH + 1];
};

/* Rows first.. and elements k.. of x; those that there are not stay. */
template <typename T>
__device__ __forceinline__ void load(const ah_distance_args &a, tile<ah_real<T>> &to, int64_t first, int64_t k)
{
    for (int i = threadIdx.x; i < AH_DISTANCE_TILE * AH_DISTANCE_WIDTH; i += AH_DISTANCE_THREADS) {
        const int64_t row = first + i / AH_DISTANCE_WIDTH, column = k + i % AH_DISTANCE_WIDTH;
        if (row < a.n && column < a.width)
            to.at[i / AH_DISTANCE_WIDTH][i % AH_DISTANCE_WIDTH] = ah_get(ah_at<const T>(a.x)[row * a.width + column]);
    }
}

template <typename T>
__device__ __forceinline__ void distances(const ah_distance_args &a, tile<ah_real<T>> &near, tile<ah_real<T>> &far)
{
    typedef ah_real<T> R;
    const int64_t tiles = (a.n + AH_DISTANCE_TILE - 1) / AH_DISTANCE_TILE;
    const int row = threadIdx.x / AH_DISTANCE_TILE, column = threadIdx.x % AH_DISTANCE_TILE;
    for (int64_t t = blockIdx.x; t < tiles * tiles; t += gridDim.x) {
        const int64_t top = t / tiles * AH_DISTANCE_TILE, left = t % tiles * AH_DISTANCE_TILE;
        if (left < top)
            continue;
        const int64_t i = top + row, j = left + column;
        double total = 0;
        R sum = 0;
        for (int64_t k = 0; k < a.width; k += AH_DISTANCE_WIDTH) {
            const int64_t left_over = a.width - k;
            const int count = left_over < (int)AH_DISTANCE_WIDTH ? (int)left_over : (int)AH_DISTANCE_WIDTH;
            __syncthreads();
            load<T>(a, near, top, k);
            load<T>(a, far, left, k);
            __syncthreads();
            if (i >= j || j >= a.n)
                continue;
            for (int e = 0; e < count; e++)
                sum = add_term<R>(a.norm, a.p, near.at[row][e] - far.at[column][e], sum);
            if (a.norm != AH_DISTANCE_LARGEST) {
                total += (double)sum;
                sum = 0;
            }
        }
        if (i >= j || j >= a.n)
            continue;
        const double result = a.norm == AH_DISTANCE_SQUARE    ? sqrt(total)
                              : a.norm == AH_DISTANCE_POWER   ? pow(total, 1 / a.p)
                              : a.norm == AH_DISTANCE_LARGEST ? (double)sum : total;
        ah_at<T>(a.distance)[pair_at(a.n, i, j)] = ah_put<T>((R)result);
    }
}

/* The slope of one pair's distance d for an element, times g; `by` is their difference. */
template <typename R> static __device__ __forceinline__ double slope(int norm, double p, double by, double g, double d)
{
    const double sign = by > 0 ? 1 : by < 0 ? -1 : by;
    switch (norm) {
    case AH_DISTANCE_COUNT: return 0;
    case AH_DISTANCE_ABSOLUTE: return g * sign;
    case AH_DISTANCE_SQUARE: return g / d * by;
    case AH_DISTANCE_LARGEST: return (R)fabs(by) == (R)d ? g * sign : 0;
    default: return by == 0 ? 0 : g * sign * pow(fabs(by) / d, p - 1);
    }
}

/* Rows that coincide have no slope. */
template <typename T> __device__ __forceinline__ void gradients(const ah_distance_args &a)
{
    AH_EACH(int64_t, at, a.n * a.width) {
        const int64_t i = at / a.width, k = at - i * a.width;
        const T *x = ah_at<const T>(a.x) + k;
        const double own = (double)ah_get(x[i * a.width]);
        double sum = 0;
        for (int64_t j = 0; j < a.n; j++) {
            if (j == i)
                continue;
            const int64_t pair = i < j ? pair_at(a.n, i, j) : pair_at(a.n, j, i);
            const double d = (double)ah_get(ah_at<const T>(a.distance)[pair]);
            if (d != 0)
                sum += slope<ah_real<T>>(a.norm, a.p, own - (double)ah_get(x[j * a.width]),
                                         (double)ah_get(ah_at<const T>(a.g)[pair]), d);
        }
        ah_at<T>(a.gx)[at] = ah_put<T>((ah_real<T>)sum);
    }
}

#define DISTANCE(suffix, type)                                                \
    AH_KERNEL(pair_distances_##suffix, ah_distance_args, AH_DISTANCE_THREADS) \
    {                                                                         \
        AH_SHARED(tile<ah_real<type>>, near);                                 \
        AH_SHARED(tile<ah_real<type>>, far);                                  \
        distances<type>(a, near, far);                                        \
    }                                                                         \
    AH_KERNEL_OF(pair_gradients_##suffix, ah_distance_args, AH_DISTANCE_THREADS, gradients<type>)
AH_FOR_REALS(DISTANCE)
