/* Running sums, products, log-sums and extremes, in double (of floats) or 64-bit integers. Contiguous lines belong to a
 * warp or, longer ones and their parts, to a block; those side by side to a thread each. */
#include "cuda/kernels/lib/elementwise.cuh"
#include "cuda/kernels/lib/scan.cuh"
#include "cuda/kernels/reduce/reduce.cuh"
#include "cuda/kernels/reduce/running.h"

static __device__ __forceinline__ double log_sum(double s, double x)
{
    const double high = x > s ? x : s, low = x > s ? s : x;
    if (x != x || s != s)
        return x + s;
    return high == low && isinf(high) ? high : high + log1p(exp(low - high));
}

/* A running number of floats, of integers (which wrap). */
struct number_of_floats {
    typedef double Item;
    typedef double State;
    int fold;
    __device__ __forceinline__ State start() const
    {
        return fold == AH_RUNNING_PRODUCT ? 1.0 : fold == AH_RUNNING_SUM ? 0.0 : -INFINITY;
    }
    __device__ __forceinline__ State of(Item x, int64_t) const
    {
        return x;
    }
    __device__ __forceinline__ State join(const State &s, const State &x) const
    {
        return fold == AH_RUNNING_PRODUCT ? s * x : fold == AH_RUNNING_SUM ? s + x : log_sum(s, x);
    }
    static __device__ __forceinline__ Item value(const State &s)
    {
        return s;
    }
    static __device__ __forceinline__ void place(const ah_running_args &, int64_t, const State &)
    {
    }
};
struct number_of_integers {
    typedef int64_t Item;
    typedef uint64_t State;
    int fold;
    __device__ __forceinline__ State start() const
    {
        return fold == AH_RUNNING_PRODUCT;
    }
    __device__ __forceinline__ State of(Item x, int64_t) const
    {
        return static_cast<State>(x);
    }
    __device__ __forceinline__ State join(const State &s, const State &x) const
    {
        return fold == AH_RUNNING_PRODUCT ? s * x : s + x;
    }
    static __device__ __forceinline__ Item value(const State &s)
    {
        return static_cast<Item>(s);
    }
    static __device__ __forceinline__ void place(const ah_running_args &, int64_t, const State &)
    {
    }
};

template <typename T> struct extreme {
    typedef T Item;
    struct State {
        T value;
        int64_t index; /* -1: none yet */
    };
    int fold;
    __device__ __forceinline__ State start() const
    {
        State s;
        s.value = 0;
        s.index = -1;
        return s;
    }
    __device__ __forceinline__ State of(T x, int64_t k) const
    {
        State s;
        s.value = x;
        s.index = k;
        return s;
    }
    __device__ __forceinline__ State join(const State &s, const State &x) const
    {
        const bool beyond = fold == AH_RUNNING_LARGEST ? x.value >= s.value : x.value <= s.value;
        return x.index >= 0 && (s.index < 0 || beyond || x.value != x.value) ? x : s;
    }
    static __device__ __forceinline__ T value(const State &s)
    {
        return s.value;
    }
    static __device__ __forceinline__ void place(const ah_running_args &a, int64_t at, const State &s)
    {
        reinterpret_cast<int64_t *>(a.index)[at] = s.index;
    }
};

template <typename M, typename T>
__device__ __forceinline__ void read_run(uint64_t base, int64_t at, T (&x)[AH_RUNNING_RUN])
{
    ah_read_run<M, T, AH_RUNNING_RUN>(reinterpret_cast<const M *>(base) + at, x);
}
static __device__ __forceinline__ void read_any(uint64_t base, int dtype, int64_t at, double (&x)[AH_RUNNING_RUN])
{
    switch (dtype) {
    case AH_F32: return read_run<float>(base, at, x);
    case AH_F16: return read_run<half_t>(base, at, x);
    case AH_BF16: return read_run<bf16_t>(base, at, x);
    default: return read_run<double>(base, at, x);
    }
}
static __device__ __forceinline__ void read_any(uint64_t base, int dtype, int64_t at, int64_t (&x)[AH_RUNNING_RUN])
{
    switch (dtype) {
    case AH_I64: return read_run<int64_t>(base, at, x);
    case AH_I32: return read_run<int32_t>(base, at, x);
    default: return read_run<uint8_t>(base, at, x);
    }
}

template <typename M, typename T>
__device__ __forceinline__ void write_run(uint64_t base, int64_t at, const T (&x)[AH_RUNNING_RUN])
{
    ah_write_run<M, T, AH_RUNNING_RUN>(reinterpret_cast<M *>(base) + at, x);
}
static __device__ __forceinline__ void write_any(uint64_t base, int dtype, int64_t at,
                                                 const double (&x)[AH_RUNNING_RUN])
{
    switch (dtype) {
    case AH_F32: return write_run<float>(base, at, x);
    case AH_F16: return write_run<half_t>(base, at, x);
    case AH_BF16: return write_run<bf16_t>(base, at, x);
    default: return write_run<double>(base, at, x);
    }
}
static __device__ __forceinline__ void write_any(uint64_t base, int dtype, int64_t at,
                                                 const int64_t (&x)[AH_RUNNING_RUN])
{
    switch (dtype) {
    case AH_I64: return write_run<int64_t>(base, at, x);
    case AH_I32: return write_run<int32_t>(base, at, x);
    default: return write_run<uint8_t>(base, at, x);
    }
}

/* The elements k.. of the line from `line` on, `count` of which exist; in reverse they are read from the line's end. */
template <typename T>
__device__ __forceinline__ void get_run(const ah_running_args &a, int64_t line, int64_t k, int64_t count,
                                        T (&x)[AH_RUNNING_RUN])
{
    const bool whole = a.wide && count >= AH_RUNNING_RUN;
    const int64_t at = line + (a.reverse ? a.n - k - AH_RUNNING_RUN : k);
    if (whole)
        read_any(a.from, a.from_dtype, at, x);
    AH_UNROLL
    for (int j = 0; j < AH_RUNNING_RUN; j++)
        if (!whole)
            x[j] = j < count ? ah_load_any<T>(a.from, a.from_dtype, a.reverse ? line + a.n - 1 - k - j : at + j) : T(0);
    if (whole && a.reverse) {
        T turned[AH_RUNNING_RUN];
        AH_UNROLL
        for (int j = 0; j < AH_RUNNING_RUN; j++)
            turned[j] = x[AH_RUNNING_RUN - 1 - j];
        AH_UNROLL
        for (int j = 0; j < AH_RUNNING_RUN; j++)
            x[j] = turned[j];
    }
}

template <typename T>
__device__ __forceinline__ void put_run(const ah_running_args &a, int64_t line, int64_t k, int64_t count,
                                        const T (&x)[AH_RUNNING_RUN])
{
    if (a.wide && !a.reverse && count >= AH_RUNNING_RUN)
        return write_any(a.to, a.to_dtype, line + k, x);
    AH_UNROLL
    for (int j = 0; j < AH_RUNNING_RUN; j++)
        if (j < count)
            ah_store_any<T>(a.to, a.to_dtype, line + (a.reverse ? a.n - 1 - k - j : k + j), x[j]);
}

/* The threads of a line, or of a part of one: a warp, a block. */
template <class F> struct by_warp {
    static constexpr int lanes = 32;
    static __device__ __forceinline__ int64_t first()
    {
        return static_cast<int64_t>(blockIdx.x) * (AH_RUNNING_THREADS / 32) + threadIdx.x / 32;
    }
    static __device__ __forceinline__ int64_t step()
    {
        return static_cast<int64_t>(gridDim.x) * (AH_RUNNING_THREADS / 32);
    }
    static __device__ __forceinline__ int lane()
    {
        return threadIdx.x % 32;
    }
    __device__ __forceinline__ typename F::State before(const F &f, const typename F::State &own,
                                                        typename F::State *all) const
    {
        return ah_warp_before(f, own, all);
    }
};
template <class F> struct by_block {
    typename F::State *shared;
    static constexpr int lanes = AH_RUNNING_THREADS;
    static __device__ __forceinline__ int64_t first()
    {
        return blockIdx.x;
    }
    static __device__ __forceinline__ int64_t step()
    {
        return gridDim.x;
    }
    static __device__ __forceinline__ int lane()
    {
        return threadIdx.x;
    }
    __device__ __forceinline__ typename F::State before(const F &f, const typename F::State &own,
                                                        typename F::State *all) const
    {
        return ah_block_before(f, own, shared, all);
    }
};

/* Contiguous lines (inner is 1). Without WRITES only the parts' states are computed. */
template <class F, class BY, bool WRITES> __device__ void running_rows(const ah_running_args &a, const BY &by)
{
    typedef typename F::State State;
    const F f = {a.fold};
    for (int64_t work = BY::first(); work < a.outer * a.parts; work += BY::step()) {
        const int64_t part = work % a.parts, line = work / a.parts * a.n, begin = part * a.each;
        const int64_t end = begin + a.each < a.n ? begin + a.each : a.n;
        State *states = reinterpret_cast<State *>(a.states), carried = f.start(), all;
        if (WRITES && part > 0) {
            const int64_t share = (part + BY::lanes - 1) / BY::lanes, first = share * BY::lane();
            for (int64_t p = first; p < first + share && p < part; p++)
                carried = f.join(carried, states[work - part + p]);
            by.before(f, carried, &all);
            carried = all;
        }
        for (int64_t base = begin; base < end; base += BY::lanes * AH_RUNNING_RUN) {
            const int64_t k = base + BY::lane() * AH_RUNNING_RUN, count = end - k;
            typename F::Item x[AH_RUNNING_RUN];
            State own = f.start();
            get_run(a, line, k, count, x);
            AH_UNROLL
            for (int j = 0; j < AH_RUNNING_RUN; j++)
                if (j < count)
                    own = f.join(own, f.of(x[j], k + j));
            State s = f.join(carried, by.before(f, own, &all));
            if (WRITES) {
                AH_UNROLL
                for (int j = 0; j < AH_RUNNING_RUN; j++) {
                    const State with = j < count ? f.join(s, f.of(x[j], k + j)) : s;
                    if (j < count)
                        F::place(a, line + k + j, with);
                    x[j] = F::value(a.exclusive ? s : with);
                    s = with;
                }
                put_run(a, line, k, count, x);
            }
            carried = f.join(carried, all);
        }
        if (!WRITES && BY::lane() == 0)
            states[work] = carried;
    }
}

/* Lines side by side, each a thread's. */
template <class F, bool WRITES> __device__ void running_columns(const ah_running_args &a)
{
    enum { AHEAD = 4 };
    typedef typename F::State State;
    const F f = {a.fold};
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x, works = a.outer * a.parts * a.inner;
    for (int64_t work = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; work < works; work += threads) {
        const int64_t column = work % a.inner, part = work / a.inner % a.parts, outer = work / a.inner / a.parts;
        const int64_t begin = part * a.each, end = begin + a.each < a.n ? begin + a.each : a.n;
        const int64_t line = outer * a.n * a.inner + column, step = a.reverse ? -a.inner : a.inner;
        State *states = reinterpret_cast<State *>(a.states), s = f.start();
        for (int64_t p = 0; WRITES && p < part; p++)
            s = f.join(s, states[(outer * a.parts + p) * a.inner + column]);
        int64_t at = line + (a.reverse ? a.n - 1 - begin : begin) * a.inner;
        for (int64_t k = begin; k < end; k += AHEAD, at += AHEAD * step) {
            typename F::Item x[AHEAD];
            AH_UNROLL
            for (int j = 0; j < AHEAD; j++)
                x[j] = k + j < end ? ah_load_any<typename F::Item>(a.from, a.from_dtype, at + j * step)
                                   : typename F::Item(0);
            AH_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                if (k + j >= end)
                    continue;
                const State with = f.join(s, f.of(x[j], k + j));
                if (WRITES) {
                    F::place(a, at + j * step, with);
                    ah_store_any<typename F::Item>(a.to, a.to_dtype, at + j * step, F::value(a.exclusive ? s : with));
                }
                s = with;
            }
        }
        if (!WRITES)
            states[work] = s;
    }
}

#define RUNNING(name, F)                                                                                \
    AH_KERNEL(running_warp_##name, ah_running_args, AH_RUNNING_THREADS)                                 \
    {                                                                                                   \
        running_rows<F, by_warp<F>, true>(a, by_warp<F>());                                             \
    }                                                                                                   \
    AH_KERNEL(running_block_##name, ah_running_args, AH_RUNNING_THREADS)                                \
    {                                                                                                   \
        AH_SHARED_ARRAY(F::State, shared, AH_RUNNING_THREADS / 32);                                     \
        running_rows<F, by_block<F>, true>(a, by_block<F>{shared});                                     \
    }                                                                                                   \
    AH_KERNEL(running_parts_##name, ah_running_args, AH_RUNNING_THREADS)                                \
    {                                                                                                   \
        AH_SHARED_ARRAY(F::State, shared, AH_RUNNING_THREADS / 32);                                     \
        running_rows<F, by_block<F>, false>(a, by_block<F>{shared});                                    \
    }                                                                                                   \
    AH_KERNEL_OF(running_columns_##name, ah_running_args, AH_RUNNING_THREADS, running_columns<F, true>) \
    AH_KERNEL_OF(running_column_parts_##name, ah_running_args, AH_RUNNING_THREADS, running_columns<F, false>)
RUNNING(floats, number_of_floats)
RUNNING(integers, number_of_integers)
RUNNING(float_extremes, extreme<double>)
RUNNING(integer_extremes, extreme<int64_t>)
