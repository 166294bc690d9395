/* Sampling on a grid. Backward, the owner of a location computes the grid's gradient; corners are sorted by the element
 * that they read, so that each element's gradient has one owner, who adds up in the order of corners and locations. */
#include "cuda/kernels/image/grid_sample.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"

/* The farthest that a coordinate may be, in input positions. */
enum { FARTHEST = 1 << 30 };

/* Into [low, high] / 2 by reflections at both ends; *turn becomes -1 after an odd number of them. */
template <typename R> __device__ __forceinline__ R reflected(R x, int64_t low, int64_t high, R *turn)
{
    *turn = 0;
    if (low == high)
        return 0;
    const R least = (R)low / 2, span = (R)(high - low) / 2;
    *turn = 1;
    x -= least;
    if (x < 0) {
        *turn = -1;
        x = -x;
    }
    if (!(x < (R)FARTHEST))
        return 0;
    const int64_t flips = (int64_t)(x / span);
    const R extra = (R)fmod((double)x, (double)span);
    if (flips % 2 == 0)
        return extra + least;
    *turn = -*turn;
    return span - extra + least;
}

/* Map a coordinate by the padding mode; *slope is multiplied by its derivative. */
template <typename R> __device__ R padded(const ah_grid_args &a, R x, int64_t n, R *slope)
{
    const R last = (R)(n - 1);
    if (a.padding == AH_GRID_REFLECTION) {
        R turn;
        x = reflected<R>(x, a.align_corners ? 0 : -1, a.align_corners ? 2 * (n - 1) : 2 * n - 1, &turn);
        *slope *= turn;
    }
    if (a.padding == AH_GRID_ZEROS)
        return x;
    *slope = x > 0 && x < last ? *slope : 0;
    return x > 0 ? x < last ? x : last : 0;
}

static __device__ __forceinline__ int32_t within(int32_t at, int64_t n)
{
    return at < 0 || at >= n ? -1 : at;
}

__device__ __forceinline__ float to_even(float x)
{
    return rintf(x);
}
__device__ __forceinline__ double to_even(double x)
{
    return rint(x);
}

/* Along one axis: input positions (-1: outside, it counts as 0), their weights, and the weights' derivatives by the
 * coordinate. One tap is nearest, two bilinear, four bicubic. */
template <typename R, int TAPS> struct taps {
    int32_t at[TAPS];
    R weight[TAPS], slope[TAPS];

    __device__ __forceinline__ void fill(const ah_grid_args &a, R coordinate, int64_t n)
    {
        const R one_more = coordinate + 1;
        R x = a.align_corners ? one_more / 2 * (R)(n - 1) : (one_more * (R)n - 1) / 2;
        R by = a.align_corners ? (R)(n - 1) / 2 : (R)n / 2;
        if (TAPS != 4)
            x = padded<R>(a, x, n, &by);
        if (!(x > -(R)FARTHEST && x < (R)FARTHEST)) /* nan, or beyond all positions */
            x = -100;
        if (TAPS == 1) {
            at[0] = within((int32_t)to_even(x), n);
            weight[0] = 1;
            slope[0] = 0;
            return;
        }
        const int32_t floor_at = (int32_t)x - (x < (R)(int32_t)x);
        const R t = x - (R)floor_at;
        AH_UNROLL
        for (int k = 0; k < TAPS; k++) {
            if (TAPS == 4) {
                R ignored = 0;
                cubic(k, t, by);
                at[k] = within((int32_t)padded<R>(a, (R)(floor_at + k - 1), n, &ignored), n);
            } else {
                at[k] = within(floor_at + k, n);
                weight[k] = k ? t : 1 - t;
                slope[k] = k ? by : -by;
            }
        }
    }
    /* Keys' cubic at distances 1 + t, t, 1 - t, 2 - t. */
    __device__ __forceinline__ void cubic(int k, R t, R slope_of)
    {
        const R by = (R)-0.75, sign = k < 2 ? 1 : -1, near = k < 2 ? t : 1 - t, far = near + 1;
        const bool inner = k == 1 || k == 2;
        weight[k] = inner ? ((by + 2) * near - (by + 3)) * near * near + 1
                          : ((by * far - 5 * by) * far + 8 * by) * far - 4 * by;
        slope[k] = slope_of * sign * (inner ? (3 * (by + 2) * near - 2 * (by + 3)) * near
                                            : (3 * by * far - 10 * by) * far + 8 * by);
    }
};

/* A location's taps along each axis; the grid's last coordinate is the first axis. */
template <typename T, int SPACE, int TAPS> struct location {
    typedef ah_real<T> R;
    static constexpr int corners = SPACE == 2 ? TAPS * TAPS : TAPS * TAPS * TAPS;
    taps<R, TAPS> axis[SPACE];

    __device__ __forceinline__ location(const ah_grid_args &a, int64_t at)
    {
        const T *grid = ah_at<const T>(a.grid) + at * SPACE;
        AH_UNROLL
        for (int d = 0; d < SPACE; d++)
            axis[d].fill(a, ah_get(grid[SPACE - 1 - d]), a.size[d]);
    }
    /* The tap of corner i along axis d. */
    static __device__ __forceinline__ constexpr int tap(int i, int d)
    {
        return d == 0 ? i % TAPS : d == 1 ? i / TAPS % TAPS : i / TAPS / TAPS;
    }
    /* Planes have fewer than 2^31 elements. */
    __device__ __forceinline__ int32_t place(const ah_grid_args &a, int i) const
    {
        int32_t at = axis[0].at[tap(i, 0)];
        AH_UNROLL
        for (int d = 1; d < SPACE; d++) {
            const int32_t here = axis[d].at[tap(i, d)];
            at = (at | here) < 0 ? -1 : at * (int32_t)a.size[d] + here;
        }
        return at;
    }
    __device__ __forceinline__ R weight(int i) const
    {
        R by = axis[0].weight[tap(i, 0)];
        AH_UNROLL
        for (int d = 1; d < SPACE; d++)
            by *= axis[d].weight[tap(i, d)];
        return by;
    }
    /* The derivative of a corner's weight by the coordinate of axis e. */
    __device__ __forceinline__ R slope(int i, int e) const
    {
        R by = axis[e].slope[tap(i, e)];
        AH_UNROLL
        for (int d = 0; d < SPACE; d++)
            by = d == e ? by : by * axis[d].weight[tap(i, d)];
        return by;
    }
};

struct read_all {
    template <typename T, int SPACE, int TAPS> static __device__ __forceinline__ void run(const ah_grid_args &a)
    {
        typedef location<T, SPACE, TAPS> where;
        const int64_t groups = (a.c + AH_GRID_CHANNELS - 1) / AH_GRID_CHANNELS;
        AH_EACH(int64_t, i, a.n * groups * a.pixels) {
            const int64_t line = i / a.pixels, pixel = i - line * a.pixels, n = line / groups;
            const int64_t first = line % groups * AH_GRID_CHANNELS;
            const int64_t end = first + AH_GRID_CHANNELS < a.c ? first + AH_GRID_CHANNELS : a.c;
            const where at(a, n * a.pixels + pixel);
            AH_ROLLED
            for (int64_t c = first; c < end; c++) {
                const T *plane = ah_at<const T>(a.x) + (n * a.c + c) * a.volume;
                ah_real<T> sum = 0;
                AH_UNROLL
                for (int k = 0; k < where::corners; k++) {
                    const int32_t place = at.place(a, k);
                    if (place >= 0)
                        sum += ah_get(plane[place]) * at.weight(k);
                }
                ah_at<T>(a.y)[(n * a.c + c) * a.pixels + pixel] = ah_put<T>(sum);
            }
        }
    }
};

/* The gradients by the weights' slopes, from the value of each corner. */
struct slope_all {
    template <typename T, int SPACE, int TAPS> static __device__ __forceinline__ void run(const ah_grid_args &a)
    {
        typedef location<T, SPACE, TAPS> where;
        AH_EACH(int64_t, i, a.n * a.pixels) {
            const int64_t n = i / a.pixels, pixel = i - n * a.pixels;
            const where at(a, i);
            const T *g = ah_at<const T>(a.y) + n * a.c * a.pixels + pixel;
            const T *x = ah_at<const T>(a.x) + n * a.c * a.volume;
            ah_real<T> by[SPACE] = {};
            AH_UNROLL
            for (int k = 0; k < where::corners; k++) {
                const int32_t place = at.place(a, k);
                ah_real<T> worth = 0;
                for (int64_t c = 0; c < a.c && place >= 0; c++)
                    worth += ah_get(x[c * a.volume + place]) * ah_get(g[c * a.pixels]);
                AH_UNROLL
                for (int e = 0; e < SPACE; e++)
                    by[SPACE - 1 - e] += at.slope(k, e) * worth;
            }
            AH_UNROLL
            for (int d = 0; d < SPACE; d++)
                ah_at<T>(a.ggrid)[i * SPACE + d] = ah_put<T>(TAPS == 1 ? 0 : by[d]);
        }
    }
};

static __device__ __forceinline__ int64_t key_at(const ah_grid_args &a, int64_t i)
{
    return a.wide ? (int64_t)ah_at<const uint64_t>(a.keys)[i] : (int64_t)ah_at<const uint32_t>(a.keys)[i];
}

/* The entries; corners outside have the key behind all places. */
struct enter_all {
    template <typename T, int SPACE, int TAPS> static __device__ __forceinline__ void run(const ah_grid_args &a)
    {
        typedef location<T, SPACE, TAPS> where;
        AH_EACH(int64_t, i, a.samples * a.pixels) {
            const int64_t sample = i / a.pixels;
            const where at(a, a.first * a.pixels + i);
            AH_UNROLL
            for (int k = 0; k < where::corners; k++) {
                const int32_t place = at.place(a, k);
                const int64_t entry = k * a.samples * a.pixels + i;
                const int64_t key = place < 0 ? a.samples * a.volume : sample * a.volume + place;
                if (a.wide)
                    ah_at<uint64_t>(a.keys)[entry] = (uint64_t)key;
                else
                    ah_at<uint32_t>(a.keys)[entry] = (uint32_t)key;
                ah_at<ah_real<T>>(a.weight)[entry] = at.weight(k);
            }
        }
    }
};

/* By mode and dims of space. */
#define KINDS(name, what, suffix, type)                      \
    KIND(name##_nearest2, what, 2, 1, suffix, type)          \
    KIND(name##_nearest3, what, 3, 1, suffix, type)          \
    KIND(name##_linear2, what, 2, 2, suffix, type)           \
    KIND(name##_linear3, what, 3, 2, suffix, type)           \
    KIND(name##_cubic2, what, 2, 4, suffix, type)
#define KIND(name, what, space, taps, suffix, type) \
    AH_KERNEL_OF(name##_##suffix, ah_grid_args, AH_GRID_THREADS, what::run<type, space, taps>)
#define EVERY(suffix, type)                                  \
    KINDS(grid_read, read_all, suffix, type)                 \
    KINDS(grid_slopes, slope_all, suffix, type)              \
    KINDS(grid_entries, enter_all, suffix, type)
AH_FOR_REALS(EVERY)

/* The owner of the first of a place's entries adds up all of them, for some channels. */
template <typename T> __device__ __forceinline__ void add_entries(const ah_grid_args &a, int64_t entries)
{
    const int64_t groups = (a.c + AH_GRID_CHANNELS - 1) / AH_GRID_CHANNELS;
    const uint32_t locations = (uint32_t)(a.samples * a.pixels); /* there are fewer than 2^32 entries */
    const uint32_t *order = ah_at<const uint32_t>(a.order);
    AH_EACH(int64_t, i, groups * entries) {
        const int64_t group = i / entries, j = i - group * entries, key = key_at(a, j);
        if (key == a.samples * a.volume || (j > 0 && key_at(a, j - 1) == key))
            continue;
        int64_t end = j + 1;
        while (end < entries && key_at(a, end) == key)
            end++;
        const int64_t sample = key / a.volume, place = key - sample * a.volume;
        for (int64_t c = group * AH_GRID_CHANNELS; c < a.c && c < (group + 1) * AH_GRID_CHANNELS; c++) {
            const int64_t plane = (a.first + sample) * a.c + c;
            const T *g = ah_at<const T>(a.y) + plane * a.pixels;
            ah_real<T> sum = 0;
            for (int64_t k = j; k < end; k++)
                sum += ah_at<const ah_real<T>>(a.weight)[order[k]] *
                       ah_get(g[(int64_t)(order[k] % locations) - sample * a.pixels]);
            ah_at<T>(a.gx)[plane * a.volume + place] = ah_put<T>(sum);
        }
    }
}

#define ADD(suffix, type)                                                                            \
    AH_KERNEL(grid_add_##suffix, ah_grid_args, AH_GRID_THREADS)                                      \
    {                                                                                                \
        const int64_t taps = a.mode == AH_GRID_NEAREST ? 1 : a.mode == AH_GRID_BICUBIC ? 4 : 2;      \
        add_entries<type>(a, a.samples * a.pixels * taps * taps * (a.space == 3 ? taps : 1));        \
    }
AH_FOR_REALS(ADD)
