/* Elementwise kernels of two inputs beyond arithmetic (cpu/elementwise/elementwise.c): angles and lengths, sums of
 * exponentials, extremes that pass over nan, whole-number functions and shifts. */
#include <math.h>

#include "cpu/elementwise/angle_vector.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/float64_vector.h"
#include "cpu/elementwise/pair_vector.h"

#define FLOATS(name, expr32, expr64)             \
    LONG_LOOP2(name##_f32, float, expr32)        \
    LONG_LOOP2(name##_f64, double, expr64)       \
    FLOAT_TABLE(name);                           \
    RESULT_KERNEL(name, 2)

/* log(b^x + b^y) as the larger of both plus the other's part; equal infinities are that infinity. */
static inline double log_sum(double x, double y)
{
    double high = x > y ? x : y, low = x > y ? y : x;
    return x == y && isinf(x) ? x : x != x ? x : high + ah_log1p(ah_exp(low - high));
}

static inline double log2_sum(double x, double y)
{
    double high = x > y ? x : y, low = x > y ? y : x;
    return x == y && isinf(x) ? x : x != x ? x : high + ah_log1p(ah_exp2(low - high)) * M_LOG2E;
}

static inline float log_sum_f32(float x, float y)
{
    float high = x > y ? x : y, low = x > y ? y : x;
    return x == y && isinf(x) ? x : x != x ? x : high + ah_log1p_unitf(ah_expf(low - high));
}

static inline float log2_sum_f32(float x, float y)
{
    float high = x > y ? x : y, low = x > y ? y : x;
    return x == y && isinf(x) ? x : x != x ? x : high + ah_log1p_unitf(ah_exp2f(low - high)) * (float)M_LOG2E;
}

FLOATS(atan2, ah_atan2f(a, b), ah_atan2(a, b))
FLOATS(hypot, ah_hypotf(a, b), ah_hypot(a, b))
FLOATS(nextafter, ah_nextafterf(a, b), ah_nextafter(a, b))
FLOATS(logaddexp, log_sum_f32(a, b), log_sum(a, b))
FLOATS(logaddexp2, log2_sum_f32(a, b), log2_sum(a, b))
FLOATS(xlogy, b != b ? b : a == 0 ? 0 : a *ah_logf(b), b != b ? b : a == 0 ? 0 : a *ah_log(b))
FLOATS(ldexp, a *ah_exp2f(b), a *ah_exp2(b))

LOOP2(copysign_f32, float, float, copysignf(a, b))
LOOP2(copysign_f64, double, double, copysign(a, b))
LOOP2(copysign_half, uint16_t, uint16_t, (a & 0x7fff) | (b & 0x8000))

int ah_cpu_copysign(struct ah_call *c)
{
    static const ah_loop loops[AH_DTYPE_COUNT] = {[AH_F16] = copysign_half, [AH_BF16] = copysign_half,
                                                  [AH_F32] = copysign_f32, [AH_F64] = copysign_f64};
    return ah_elementwise_result(c, 2, loops);
}

#define ALL(name, expr)    \
    ALL_LOOPS2(name, expr) \
    ALL_TABLE(name);       \
    PROMOTED_KERNEL(name, 2)
ALL(fmax, b != b || a > b ? a : a != a ? b : b)
ALL(fmin, b != b || a < b ? a : a != a ? b : b)
ALL(heaviside, a == 0 ? b : a > 0)

static inline uint64_t size_of(int64_t x)
{
    return x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
}

static inline uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline uint64_t lcm(uint64_t a, uint64_t b)
{
    return a == 0 || b == 0 ? 0 : a / gcd(a, b) * b;
}

/* Bits that are shifted out are lost; a count that is negative or not below the width shifts out all. */
static inline int64_t left_shift(int64_t a, int64_t count, int width)
{
    return count < 0 || count >= width ? 0 : (int64_t)((uint64_t)a << count);
}

static inline int64_t right_shift(int64_t a, int64_t count, int width)
{
    return count < 0 || count >= width ? (a < 0 ? -1 : 0) : a >> count;
}

#define INTEGERS(name, of8, of32, of64)                                                       \
    LOOP2(name##_u8, uint8_t, uint8_t, of8)                                                   \
    LOOP2(name##_i32, int32_t, int32_t, of32)                                                 \
    LOOP2(name##_i64, int64_t, int64_t, of64)                                                 \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                     \
        [AH_U8] = name##_u8, [AH_I32] = name##_i32, [AH_I64] = name##_i64};                   \
    PROMOTED_KERNEL(name, 2)
INTEGERS(gcd, gcd(a, b), gcd(size_of(a), size_of(b)), gcd(size_of(a), size_of(b)))
INTEGERS(lcm, lcm(a, b), lcm(size_of(a), size_of(b)), lcm(size_of(a), size_of(b)))
INTEGERS(bitwise_left_shift, left_shift(a, b, 8), left_shift(a, b, 32), left_shift(a, b, 64))
INTEGERS(bitwise_right_shift, right_shift(a, b, 8), right_shift(a, b, 32), right_shift(a, b, 64))
