/* Sums, products, extremes and their like, in double (of floats) or 64-bit integers; places of extremes; variances and
 * logarithms of sums of exponentials, whose partial results are joined as they are. */
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/wrap.cuh"

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

template <typename T> struct fold {
    typedef T State;
    int how;
    double power;
    __device__ __forceinline__ T start() const
    {
        switch (how) {
        case AH_REDUCE_PROD: return 1;
        case AH_REDUCE_MAX: return least<T>();
        case AH_REDUCE_MIN:
        case AH_REDUCE_ABS_MIN: return most<T>();
        default: return 0;
        }
    }
    __device__ __forceinline__ void add(T &s, T x, int64_t) const
    {
        switch (how) {
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
    __device__ __forceinline__ void join(T &s, const T &x) const
    {
        switch (how) {
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

template <typename T> __device__ void fold_all(const ah_reduce_args &a, T *shared)
{
    const fold<T> f = {a.fold, a.number};
    ah_reduce_all<fold<T>, T>(a, f, shared, [&a](T x, int64_t at) {
        ah_store_any<T>(a.to, a.to_dtype, at, finished<T>(a, x));
    });
}

AH_KERNEL_LARGE(fold_float, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(double, shared, AH_REDUCE_THREADS);
    fold_all<double>(a, shared);
}
AH_KERNEL_LARGE(fold_integer, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(int64_t, shared, AH_REDUCE_THREADS);
    fold_all<int64_t>(a, shared);
}

/* The first place of the largest or smallest; nan is both. */
template <typename T> struct place {
    T value;
    int64_t index; /* -1: none yet */
};
template <typename T> struct extreme {
    typedef place<T> State;
    bool smallest;
    __device__ __forceinline__ State start() const
    {
        State s;
        s.value = 0;
        s.index = -1;
        return s;
    }
    __device__ __forceinline__ void add(State &s, T x, int64_t i) const
    {
        State other;
        other.value = x;
        other.index = i;
        join(s, other);
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

template <typename T> __device__ void extreme_all(const ah_reduce_args &a, place<T> *shared)
{
    const extreme<T> f = {a.fold == AH_REDUCE_MIN};
    ah_reduce_all<extreme<T>, T>(a, f, shared, [&a](const place<T> &x, int64_t at) {
        if (a.to)
            ah_store_any<T>(a.to, a.to_dtype, at, x.value);
        reinterpret_cast<int64_t *>(a.index)[at] = x.index;
    });
}

AH_KERNEL_LARGE(extreme_float, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(place<double>, shared, AH_REDUCE_THREADS);
    extreme_all<double>(a, shared);
}
AH_KERNEL_LARGE(extreme_integer, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(place<int64_t>, shared, AH_REDUCE_THREADS);
    extreme_all<int64_t>(a, shared);
}

/* Count, mean and the sum of squared distances from it (Welford; joined by Chan's formula). */
struct moments {
    double count, mean, squares;
};
struct spread {
    typedef moments State;
    __device__ __forceinline__ moments start() const
    {
        moments s;
        s.count = s.mean = s.squares = 0;
        return s;
    }
    __device__ __forceinline__ void add(moments &s, double x, int64_t) const
    {
        s.count += 1;
        const double before = x - s.mean;
        s.mean += before / s.count;
        s.squares += before * (x - s.mean);
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
    ah_reduce_all<spread, double>(a, f, shared, [&a](const moments &x, int64_t at) {
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
    __device__ __forceinline__ scaled_sum start() const
    {
        scaled_sum s;
        s.top = -INFINITY;
        s.sum = 0;
        return s;
    }
    __device__ __forceinline__ void add(scaled_sum &s, double x, int64_t) const
    {
        scaled_sum other;
        other.top = x;
        other.sum = 1;
        join(s, other);
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
        /* Of equal infinities the distance is 0. */
        s.sum = s.sum * (s.top == top ? 1.0 : exp(s.top - top)) + x.sum * (x.top == top ? 1.0 : exp(x.top - top));
        s.top = top;
    }
};
AH_KERNEL_LARGE(log_sum_exp, ah_reduce_args, AH_REDUCE_THREADS)
{
    AH_SHARED_ARRAY(scaled_sum, shared, AH_REDUCE_THREADS);
    const exponentials f;
    ah_reduce_all<exponentials, double>(a, f, shared, [&a](const scaled_sum &x, int64_t at) {
        ah_store_any<double>(a.to, a.to_dtype, at, x.sum == 0 || fabs(x.top) == INFINITY ? x.top : log(x.sum) + x.top);
    });
}
