/* Sums, products, extremes and their like, in double (of floats) or 64-bit integers; places of extremes; variances and
 * logarithms of sums of exponentials, whose partial results are joined as they are. Elements that a thread has read at
 * once are folded as floats where that is exact, or as good as in double (exact.cuh). */
#include "cuda/kernels/lib/exact.cuh"
#include "cuda/kernels/lib/wrap.cuh"
#include "cuda/kernels/reduce/reduce.cuh"

template <typename T> __device__ __forceinline__ T size_of(T x)
{
    return x < 0 ? -x : x;
}

template <typename T> __device__ __forceinline__ T least()
{
    return static_cast<T>(0.5) != 0 ? static_cast<T>(-INFINITY) : static_cast<T>(INT64_MIN);
}
template <typename T> __device__ __forceinline__ T most()
{
    return static_cast<T>(0.5) != 0 ? static_cast<T>(INFINITY) : static_cast<T>(INT64_MAX);
}

template <typename T> __device__ __forceinline__ T larger(T a, T b)
{
    return a > b || a != a ? a : b;
}
template <typename T> __device__ __forceinline__ T smaller(T a, T b)
{
    return a < b || a != a ? a : b;
}

template <int HOW, typename T> __device__ __forceinline__ void fold_one(T &s, T x, double power)
{
    switch (HOW) {
    case AH_REDUCE_SUM: s = ah_plus(s, x); break;
    case AH_REDUCE_NANSUM: s = ah_plus(s, x == x ? x : T(0)); break;
    case AH_REDUCE_PROD: s = ah_times(s, x); break;
    case AH_REDUCE_MAX: s = larger(s, x); break;
    case AH_REDUCE_MIN: s = smaller(s, x); break;
    case AH_REDUCE_COUNT: s += x != 0; break;
    case AH_REDUCE_ABS: s = ah_plus(s, size_of(x)); break;
    case AH_REDUCE_SQUARES: s = ah_plus(s, ah_times(x, x)); break;
    case AH_REDUCE_POWERS: s += static_cast<T>(pow(static_cast<double>(size_of(x)), power)); break;
    case AH_REDUCE_ABS_MAX: s = larger(s, size_of(x)); break;
    default: s = smaller(s, size_of(x)); break;
    }
}

/* A fold by HOW, an enum ah_reduce_fold. */
template <typename T, int HOW> struct fold {
    typedef T State;
    typedef T Own;
    double power;
    __device__ __forceinline__ T start() const
    {
        switch (HOW) {
        case AH_REDUCE_PROD: return 1;
        case AH_REDUCE_MAX: return least<T>();
        case AH_REDUCE_MIN:
        case AH_REDUCE_ABS_MIN: return most<T>();
        default: return 0;
        }
    }
    __device__ __forceinline__ T open() const
    {
        return start();
    }
    __device__ __forceinline__ T close(T s) const
    {
        return s;
    }
    template <int M, class I> __device__ __forceinline__ void add(T &s, const T (&x)[M], const I &) const
    {
        AH_UNROLL
        for (int j = 0; j < M; j++)
            fold_one<HOW>(s, x[j], power);
    }
    /* Of floats in double. */
    template <int M, class I> __device__ __forceinline__ void add(double &s, const float (&x)[M], const I &) const
    {
        if constexpr (HOW == AH_REDUCE_SUM || HOW == AH_REDUCE_NANSUM || HOW == AH_REDUCE_ABS) {
            float y[M];
            AH_UNROLL
            for (int j = 0; j < M; j++)
                y[j] = HOW == AH_REDUCE_ABS ? fabsf(x[j]) : HOW == AH_REDUCE_NANSUM && x[j] != x[j] ? 0.0f : x[j];
            s += ah_exact_sum(y);
        } else if constexpr (HOW == AH_REDUCE_SQUARES) {
            s += ah_exact_squares(x);
        } else if constexpr (HOW == AH_REDUCE_COUNT) {
            int count = 0;
            AH_UNROLL
            for (int j = 0; j < M; j++)
                count += x[j] != 0;
            s += count;
        } else if constexpr (HOW == AH_REDUCE_PROD || HOW == AH_REDUCE_POWERS) {
            AH_UNROLL
            for (int j = 0; j < M; j++)
                fold_one<HOW>(s, static_cast<double>(x[j]), power);
        } else {
            constexpr bool sizes = HOW == AH_REDUCE_ABS_MAX || HOW == AH_REDUCE_ABS_MIN;
            float y = sizes ? fabsf(x[0]) : x[0];
            AH_UNROLL
            for (int j = 1; j < M; j++)
                fold_one<HOW>(y, x[j], power);
            fold_one<HOW>(s, static_cast<double>(y), power);
        }
    }
    __device__ __forceinline__ void join(T &s, const T &x) const
    {
        switch (HOW) {
        case AH_REDUCE_PROD: s = ah_times(s, x); break;
        case AH_REDUCE_MAX:
        case AH_REDUCE_ABS_MAX: s = larger(s, x); break;
        case AH_REDUCE_MIN:
        case AH_REDUCE_ABS_MIN: s = smaller(s, x); break;
        default: s = ah_plus(s, x); break;
        }
    }
};

template <typename T> __device__ __forceinline__ T finished(const ah_reduce_args &a, T x)
{
    switch (a.finish) {
    case AH_FINISH_DIVIDE: return static_cast<T>(static_cast<double>(x) / a.number);
    case AH_FINISH_ROOT: return static_cast<T>(sqrt(static_cast<double>(x)));
    case AH_FINISH_POWER: return static_cast<T>(pow(static_cast<double>(x), 1 / a.number));
    case AH_FINISH_ANY: return x > 0;
    case AH_FINISH_ALL: return static_cast<double>(x) == a.number;
    default: return x;
    }
}

template <class READ, typename T, int HOW> __device__ void fold_all(const ah_reduce_args &a, T *shared)
{
    const fold<T, HOW> f = {a.number};
    ah_reduce_all<READ>(a, f, shared, [&a](T x, int64_t at) {
        ah_store_any<T>(a.to, a.to_dtype, at, finished<T>(a, x));
    });
}

#define FOLD_FLOATS(name, HOW)                                         \
    AH_KERNEL_LARGE(fold_float_##name, ah_reduce_args, AH_REDUCE_THREADS) \
    {                                                                  \
        AH_SHARED_ARRAY(double, shared, AH_REDUCE_THREADS);            \
        fold_all<ah_reduce_reals, double, HOW>(a, shared);             \
    }
#define FOLD_INTEGERS(name, HOW)                                         \
    AH_KERNEL_LARGE(fold_integer_##name, ah_reduce_args, AH_REDUCE_THREADS) \
    {                                                                    \
        AH_SHARED_ARRAY(int64_t, shared, AH_REDUCE_THREADS);             \
        fold_all<ah_reduce_integers, int64_t, HOW>(a, shared);           \
    }
#define FOLD_BOTH(name, HOW) FOLD_FLOATS(name, HOW) FOLD_INTEGERS(name, HOW)
FOLD_BOTH(sum, AH_REDUCE_SUM)
FOLD_BOTH(prod, AH_REDUCE_PROD)
FOLD_BOTH(max, AH_REDUCE_MAX)
FOLD_BOTH(min, AH_REDUCE_MIN)
FOLD_BOTH(count, AH_REDUCE_COUNT)
FOLD_FLOATS(nansum, AH_REDUCE_NANSUM)
FOLD_FLOATS(abs, AH_REDUCE_ABS)
FOLD_FLOATS(squares, AH_REDUCE_SQUARES)
FOLD_FLOATS(powers, AH_REDUCE_POWERS)
FOLD_FLOATS(abs_max, AH_REDUCE_ABS_MAX)
FOLD_FLOATS(abs_min, AH_REDUCE_ABS_MIN)

/* The first place of the largest or smallest; nan is both. */
template <typename T> struct place {
    T value;
    int64_t index; /* -1: none yet */
};
template <typename T> struct extreme {
    typedef place<T> State;
    typedef place<T> Own;
    bool smallest;
    __device__ __forceinline__ State start() const
    {
        State s;
        s.value = 0;
        s.index = -1;
        return s;
    }
    __device__ __forceinline__ State open() const
    {
        return start();
    }
    __device__ __forceinline__ State close(const State &s) const
    {
        return s;
    }
    template <int M, class I> __device__ __forceinline__ void add(State &s, const T (&x)[M], const I &index) const
    {
        AH_UNROLL
        for (int j = 0; j < M; j++) {
            State other;
            other.value = x[j];
            other.index = index(j);
            join(s, other);
        }
    }
    __device__ __forceinline__ void join(State &s, const State &x) const
    {
        if (x.index < 0)
            return;
        const bool nan = x.value != x.value, had_nan = s.value != s.value;
        const bool beyond = smallest ? x.value < s.value : x.value > s.value;
        const bool level = x.value == s.value || (nan && had_nan);
        if (s.index < 0 || (nan && !had_nan) || (beyond && !had_nan) || (level && x.index < s.index))
            s = x;
    }
};

/* T is compared, and stored by way of W. */
template <class READ, typename T, typename W> __device__ void extreme_all(const ah_reduce_args &a, place<T> *shared)
{
    const extreme<T> f = {a.fold == AH_REDUCE_MIN};
    ah_reduce_all<READ>(a, f, shared, [&a](const place<T> &x, int64_t at) {
        if (a.to)
            ah_store_any<W>(a.to, a.to_dtype, at, static_cast<W>(x.value));
        reinterpret_cast<int64_t *>(a.index)[at] = x.index;
    });
}

AH_KERNEL_LARGE(extreme_float, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(place<float>, shared, AH_REDUCE_THREADS);
    extreme_all<ah_reduce_floats, float, double>(a, shared);
}
AH_KERNEL_LARGE(extreme_double, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(place<double>, shared, AH_REDUCE_THREADS);
    extreme_all<ah_reduce_doubles, double, double>(a, shared);
}
AH_KERNEL_LARGE(extreme_integer, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(place<int64_t>, shared, AH_REDUCE_THREADS);
    extreme_all<ah_reduce_integers, int64_t, int64_t>(a, shared);
}

/* Count, mean and the sum of squared distances from it (Welford; joined by Chan's formula). */
struct moments {
    double count, mean, squares;
};
/* Those of doubles; of floats their number, the sum of their distances from the first and that of the squares. */
struct distances {
    moments doubles;
    double count, sum, squares;
    float from;
};
struct spread {
    typedef moments State;
    typedef distances Own;
    __device__ __forceinline__ moments start() const
    {
        moments s;
        s.count = s.mean = s.squares = 0;
        return s;
    }
    __device__ __forceinline__ distances open() const
    {
        distances own;
        own.doubles = start();
        own.count = own.sum = own.squares = 0;
        own.from = 0;
        return own;
    }
    __device__ __forceinline__ moments close(const distances &own) const
    {
        if (own.count == 0)
            return own.doubles;
        const double mean = own.sum / own.count, squares = own.squares - own.sum * mean;
        moments s;
        s.count = own.count;
        s.mean = own.from + mean;
        s.squares = squares < 0 ? 0 : squares; /* NaN stays */
        return s;
    }
    template <int M, class I> __device__ __forceinline__ void add(distances &own, const double (&x)[M], const I &) const
    {
        moments &s = own.doubles;
        AH_UNROLL
        for (int j = 0; j < M; j++) {
            s.count += 1;
            const double before = x[j] - s.mean;
            s.mean += before / s.count;
            s.squares += before * (x[j] - s.mean);
        }
    }
    template <int M, class I> __device__ __forceinline__ void add(distances &own, const float (&x)[M], const I &) const
    {
        ah_exact sum = {0, 0}, squares = {0, 0};
        if (own.count == 0)
            own.from = x[0];
        AH_UNROLL
        for (int j = 0; j < M; j++) {
            const float apart = x[j] - own.from, square = apart * apart;
            const float rest = ah_rounded_off(x[j], -own.from, apart);
            sum.add(apart);
            sum.rest += rest;
            squares.add(square);
            squares.rest += fmaf(apart, apart, -square) + 2 * apart * rest;
        }
        own.count += M;
        if (squares.holds_squares()) {
            own.sum += sum.value();
            own.squares += squares.value();
            return;
        }
        AH_UNROLL
        for (int j = 0; j < M; j++) {
            const double apart = static_cast<double>(x[j]) - static_cast<double>(own.from);
            own.sum += apart;
            own.squares += apart * apart;
        }
    }
    __device__ __forceinline__ void join(moments &s, const moments &x) const
    {
        const double count = s.count + x.count, apart = x.mean - s.mean;
        if (x.count == 0)
            return;
        s.mean += apart * (x.count / count);
        s.squares += x.squares + apart * apart * (s.count * x.count / count);
        s.count = count;
    }
};

/* number: the correction. */
AH_KERNEL_LARGE(variance, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(moments, shared, AH_REDUCE_THREADS);
    const spread f;
    ah_reduce_all<ah_reduce_reals>(a, f, shared, [&a](const moments &x, int64_t at) {
        const double rest = a.inputs > 0 ? static_cast<double>(a.inputs) - a.number : 0;
        const double variance = x.squares / (rest > 0 ? rest : 0.0);
        ah_store_any<double>(a.to, a.to_dtype, at, a.finish == AH_FINISH_ROOT ? sqrt(variance) : variance);
    });
}

/* The largest and the sum of the exponentials of the distances below it. */
struct scaled_sum {
    double top, sum;
};
struct exponentials {
    typedef scaled_sum State;
    typedef scaled_sum Own;
    bool single; /* exponentials of floats are float's */
    __device__ __forceinline__ scaled_sum start() const
    {
        scaled_sum s;
        s.top = -INFINITY;
        s.sum = 0;
        return s;
    }
    __device__ __forceinline__ scaled_sum open() const
    {
        return start();
    }
    __device__ __forceinline__ scaled_sum close(const scaled_sum &s) const
    {
        return s;
    }
    template <int M, typename V, class I>
    __device__ __forceinline__ void add(scaled_sum &s, const V (&x)[M], const I &) const
    {
        V most = x[0];
        AH_UNROLL
        for (int j = 1; j < M; j++)
            most = larger(most, x[j]);
        const double top = larger(s.top, static_cast<double>(most));
        /* Of equal infinities the distance is 0. */
        if (s.sum != 0 && s.top != top)
            s.sum *= exp(s.top - top);
        s.top = top;
        if (sizeof(V) == sizeof(float) && single) {
            const float from = static_cast<float>(top);
            float sum = 0;
            AH_UNROLL
            for (int j = 0; j < M; j++)
                sum += static_cast<float>(x[j]) == from ? 1.0f : expf(static_cast<float>(x[j]) - from);
            s.sum += sum;
            return;
        }
        AH_UNROLL
        for (int j = 0; j < M; j++)
            s.sum += static_cast<double>(x[j]) == top ? 1.0 : exp(static_cast<double>(x[j]) - top);
    }
    __device__ __forceinline__ void join(scaled_sum &s, const scaled_sum &x) const
    {
        if (x.sum == 0)
            return;
        if (s.sum == 0) {
            s = x;
            return;
        }
        const double top = larger(s.top, x.top);
        s.sum = s.sum * (s.top == top ? 1.0 : exp(s.top - top)) + x.sum * (x.top == top ? 1.0 : exp(x.top - top));
        s.top = top;
    }
};
AH_KERNEL_LARGE(log_sum_exp, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(scaled_sum, shared, AH_REDUCE_THREADS);
    const exponentials f = {a.single != 0};
    ah_reduce_all<ah_reduce_reals>(a, f, shared, [&a](const scaled_sum &x, int64_t at) {
        ah_store_any<double>(a.to, a.to_dtype, at, x.sum == 0 || fabs(x.top) == INFINITY ? x.top : log(x.sum) + x.top);
    });
}
