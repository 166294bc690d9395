/* Elementwise arithmetic of two inputs, powers and distances. */
#include "cuda/kernels/lib/elementwise.cuh"

/* Integers wrap around, so their sums and products are made in an unsigned type. */
#define U(x) static_cast<uint64_t>(x)

AH_EW2(add_b8, uint8_t, uint8_t, a | (c0 ? b : 0))
AH_EW2_INTEGERS(add, U(a) + U(c0) * U(b))
AH_EW2_FLOATS(add, a + b)
AH_EW2_FLOATS(sub, a - b)
AH_EW2_FLOATS(add_scaled, fma(c0, b, a))
AH_EW2(mul_b8, uint8_t, uint8_t, a &b)
AH_EW2_INTEGERS(mul, U(a) * U(b))
AH_EW2_FLOATS(mul, a *b)
AH_EW2_FLOATS(div, a / b)

template <typename T> __device__ __forceinline__ T integer_power(T base, T exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == T(-1) ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t result = 1, factor = U(base);
    for (uint64_t left = U(exponent); left; left >>= 1, factor *= factor)
        if (left & 1)
            result *= factor;
    return static_cast<T>(result);
}

AH_EW2_INTEGERS(pow, integer_power<T>(a, b))
AH_EW2_FLOATS(pow, pow(a, b))
AH_EW2_FLOATS(pow_2, a *a)
AH_EW2_FLOATS(pow_3, a *a *a)
AH_EW2_FLOATS(pow_half, sqrt(a))
AH_EW2_FLOATS(pow_minus_half, T(1) / sqrt(a))
AH_EW2_FLOATS(pow_minus_1, T(1) / a)
AH_EW2_FLOATS(pow_minus_2, T(1) / (a * a))

AH_EW2_INTEGERS(squared_difference, (U(a) - U(b)) * (U(a) - U(b)))
AH_EW2_FLOATS(squared_difference, (a - b) * (a - b))

/* Quadratic below c0, linear above. */
template <typename T> __device__ __forceinline__ T smooth_l1_at(T z, T beta)
{
    return z < beta ? T(0.5) * z * z / beta : z - T(0.5) * beta;
}
template <typename T> __device__ __forceinline__ T huber_at(T z, T delta)
{
    return z <= delta ? T(0.5) * z * z : delta * (z - T(0.5) * delta);
}
AH_EW2_FLOATS(smooth_l1, smooth_l1_at<T>(fabs(a - b), c0))
AH_EW2_FLOATS(huber, huber_at<T>(fabs(a - b), c0))

/* log(e^x + e^y) as the larger of both plus the other's part; equal infinities are that infinity. */
template <typename T> __device__ __forceinline__ T log_sum(T x, T y)
{
    const T high = x > y ? x : y, low = x > y ? y : x;
    return x == y && fabs(x) == T(INFINITY) ? x : x != x ? x : high + log1p(exp(low - high));
}
template <typename T> __device__ __forceinline__ T log2_sum(T x, T y)
{
    const T high = x > y ? x : y, low = x > y ? y : x;
    return x == y && fabs(x) == T(INFINITY) ? x
           : x != x                         ? x
                                            : high + log1p(exp2(low - high)) * T(1.44269504088896340736);
}
AH_EW2_FLOATS(atan2, atan2(a, b))
AH_EW2_FLOATS(hypot, hypot(a, b))
AH_EW2(nextafter_f32, float, float, nextafterf(a, b))
AH_EW2(nextafter_f64, double, double, nextafter(a, b))
AH_EW2_FLOATS(copysign, copysign(a, b))
AH_EW2_FLOATS(logaddexp, log_sum<T>(a, b))
AH_EW2_FLOATS(logaddexp2, log2_sum<T>(a, b))
AH_EW2_FLOATS(xlogy, b != b ? b : a == 0 ? T(0) : a * log(b))
AH_EW2_FLOATS(ldexp, a *exp2(b))

AH_EW2_ALL(fmax, b != b || a > b ? a : a != a ? b : b)
AH_EW2_ALL(fmin, b != b || a < b ? a : a != a ? b : b)
AH_EW2_ALL(heaviside, a == 0 ? b : T(a > 0))

__device__ __forceinline__ uint64_t size_of(int64_t x)
{
    return x < 0 ? 0 - U(x) : U(x);
}
__device__ __forceinline__ uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
__device__ __forceinline__ uint64_t common_multiple(uint64_t a, uint64_t b)
{
    return a == 0 || b == 0 ? 0 : a / common_divisor(a, b) * b;
}
/* Bits that are shifted out are lost; a count that is negative or not below the width shifts out all. */
__device__ __forceinline__ int64_t left_shift(int64_t a, int64_t count, int width)
{
    return count < 0 || count >= width ? 0 : static_cast<int64_t>(U(a) << count);
}
__device__ __forceinline__ int64_t right_shift(int64_t a, int64_t count, int width)
{
    return count < 0 || count >= width ? (a < 0 ? -1 : 0) : a >> count;
}
AH_EW2_INTEGERS(gcd, common_divisor(size_of(a), size_of(b)))
AH_EW2_INTEGERS(lcm, common_multiple(size_of(a), size_of(b)))
AH_EW2_INTEGERS(left_shift, left_shift(a, b, 8 * sizeof(T)))
AH_EW2_INTEGERS(right_shift, right_shift(a, b, 8 * sizeof(T)))
