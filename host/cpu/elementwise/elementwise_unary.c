/* Elementwise kernels of one input, and the fused gradients of activations, by the vectorised functions of
 * elementwise_math.h and its neighbours. */
#include <math.h>
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/elementwise/activation_math.h"
#include "cpu/elementwise/angle_vector.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/float64_vector.h"
#include "cpu/elementwise/gelu_lanes.h"
#include "cpu/elementwise/half_loops.h"
#include "cpu/elementwise/special_vector.h"

/* Integers (and bool, as uint8) wrap around: their expressions work on the unsigned type. */
#define NUMBER_LOOPS(name, u8_expr, int_expr, float_expr) \
    LOOP1(name##_u8, uint8_t, uint8_t, u8_expr)           \
    LOOP1(name##_i32, int32_t, int32_t, int_expr)         \
    LOOP1(name##_i64, int64_t, int64_t, int_expr)         \
    LOOP1(name##_f32, float, float, float_expr)           \
    LOOP1(name##_f64, double, double, float_expr)
#define NUMBER_UNARY(name, u8_expr, int_expr, float_expr) \
    NUMBER_LOOPS(name, u8_expr, int_expr, float_expr)     \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = { \
        [AH_BOOL] = name##_u8, [AH_U8] = name##_u8,       \
        [AH_I32] = name##_i32, [AH_I64] = name##_i64,     \
        [AH_F32] = name##_f32, [AH_F64] = name##_f64};    \
    RESULT_KERNEL(name, 1)


NUMBER_UNARY(sign, a != 0, (a > 0) - (a < 0), (a > 0) - (a < 0))
NUMBER_LOOPS(square, a *a, (uint64_t)a * (uint64_t)a, a *a)
AH_HALF_LOOPS1(square, a *a)

int ah_cpu_square(struct ah_call *c)
{
    static const ah_loop loops[AH_DTYPE_COUNT] = {
        AH_HALF_ENTRIES(square) [AH_BOOL] = square_u8, [AH_U8] = square_u8, [AH_I32] = square_i32,
        [AH_I64] = square_i64, [AH_F32] = square_f32, [AH_F64] = square_f64};
    return ah_elementwise_result(c, 1, loops);
}

/* Of halves the bits decide: 0x8000 is -0; numbers below 0 are 0x8001 to 0x8000 + the bits of infinity. */
#define F16_INFINITY 0x7c00
#define BF16_INFINITY 0x7f80
#define HALF_BELOW_0(bits, infinity) ((uint16_t)((bits) - 0x8001) < (infinity))
#define HALF_UP_TO_0(bits, infinity) ((uint16_t)((bits) - 0x8000) <= (infinity) || (bits) == 0)

#define NUMBER_TABLE_HALVES(name, of_f16, of_bf16)                                                \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                         \
        [AH_BOOL] = name##_u8, [AH_U8] = name##_u8, [AH_I32] = name##_i32, [AH_I64] = name##_i64, \
        [AH_F16] = of_f16,     [AH_BF16] = of_bf16, [AH_F32] = name##_f32, [AH_F64] = name##_f64}
NUMBER_LOOPS(neg, 0 - a, 0 - (uint64_t)a, -a)
NUMBER_LOOPS(abs, a, a < 0 ? 0 - (uint64_t)a : (uint64_t)a, a < 0 ? -a : a + 0)
LOOP1(neg_half, uint16_t, uint16_t, a ^ 0x8000)
LOOP1(abs_half, uint16_t, uint16_t, a & 0x7fff)
NUMBER_TABLE_HALVES(neg, neg_half, neg_half);
RESULT_KERNEL(neg, 1)
NUMBER_TABLE_HALVES(abs, abs_half, abs_half);
RESULT_KERNEL(abs, 1)

NUMBER_LOOPS(relu, a, a < 0 ? 0 : a, a < 0 ? 0 : a)
LOOP1(relu_f16, uint16_t, uint16_t, HALF_BELOW_0(a, F16_INFINITY) ? 0 : a)
LOOP1(relu_bf16, uint16_t, uint16_t, HALF_BELOW_0(a, BF16_INFINITY) ? 0 : a)
NUMBER_TABLE_HALVES(relu, relu_f16, relu_bf16);
RESULT_KERNEL(relu, 1)

#define ROUNDING(name, expr32, expr64)                    \
    LOOP1(name##_f32, float, float, expr32)               \
    LOOP1(name##_f64, double, double, expr64)             \
    FLOAT_TABLE(name);                                    \
    int ah_cpu_##name(struct ah_call *c)                  \
    {                                                     \
        return ah_elementwise_of_floats(c, name##_loops); \
    }
ROUNDING(floor, floorf(a), floor(a))
ROUNDING(ceil, ceilf(a), ceil(a))
ROUNDING(round, rintf(a), rint(a))
ROUNDING(trunc, truncf(a), trunc(a))

/* The last expression is of a vector of float32. */
#define UNARY_OF_HALVES(name, expr32, expr64, expr)                                                          \
    AH_HALF_LOOPS1(name, expr)                                                                               \
    LOOP1(name##_f32, float, float, expr32)                                                                  \
    LOOP1(name##_f64, double, double, expr64)                                                                \
    int ah_cpu_##name(struct ah_call *c)                                                                     \
    {                                                                                                        \
        static const ah_loop loops[AH_DTYPE_COUNT] = {                                                       \
            AH_HALF_ENTRIES(name) [AH_F32] = name##_f32, [AH_F64] = name##_f64};                             \
        return ah_elementwise_result(c, 1, loops);                                                           \
    }
UNARY_OF_HALVES(reciprocal, 1.0f / a, 1.0 / a, 1.0f / a)
UNARY_OF_HALVES(sqrt, sqrtf(a), sqrt(a), ah_sqrt_f32(a))
UNARY_OF_HALVES(rsqrt, 1.0f / sqrtf(a), 1.0 / sqrt(a), 1.0f / ah_sqrt_f32(a))

/* Powers of a constant, by vectors. */
#define EXPONENTIAL(name, lanes, expr64)                                                                     \
    AH_HALF_LOOPS1(name, lanes(a))                                                                           \
    LANES_LOOP1(name##_f32, lanes(a))                                                                        \
    LONG_LOOP1(name##_f64, double, expr64)                                                                   \
    int ah_cpu_##name(struct ah_call *c)                                                                     \
    {                                                                                                        \
        static const ah_loop loops[AH_DTYPE_COUNT] = {                                                       \
            AH_HALF_ENTRIES(name) [AH_F32] = name##_f32, [AH_F64] = name##_f64};                             \
        return ah_elementwise_result(c, 1, loops);                                                           \
    }
EXPONENTIAL(exp, ah_exp_f32, ah_exp(a))
EXPONENTIAL(exp2, ah_exp2_f32, ah_exp2(a))

LANES_LOOP1(expm1_f32, ah_expm1_f32(a))
LONG_LOOP1(expm1_f64, double, ah_expm1(a))
FLOAT_TABLE(expm1);
RESULT_KERNEL(expm1, 1)
FLOAT_UNARY(log, ah_logf(a), ah_log(a))
LONG_UNARY(log1p, ah_log1pf(a), ah_log1p(a))
LONG_UNARY(log2, ah_log2f(a), ah_log2(a))
LONG_UNARY(atan, ah_atanf(a), ah_atan(a))
LONG_UNARY(erf, ah_erff(a), ah_erf(a))
LONG_UNARY(tanh, ah_tanhf(a), ah_tanh(a))
FLOAT_UNARY(sigmoid, ah_sigmoidf(a), ah_sigmoid(a))
/* A nan fails both comparisons and stays. */
FLOAT_UNARY(hardsigmoid, (a < -3.0f ? 0.0f : a > 3.0f ? 6.0f : a + 3.0f) / 6.0f,
            (a < -3.0 ? 0.0 : a > 3.0 ? 6.0 : a + 3.0) / 6.0)
FLOAT_UNARY(hardswish, a *(a < -3.0f ? 0.0f : a > 3.0f ? 6.0f : a + 3.0f) / 6.0f,
            a *(a < -3.0 ? 0.0 : a > 3.0 ? 6.0 : a + 3.0) / 6.0)
FLOAT_UNARY(silu, a *ah_sigmoidf(a), a / (1.0 + ah_exp(-a)))

/* Large angles are done again by libm, element by element. */
#define TRIG_LOOP(fn, real, size, limit, expr, far)                                                \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context)         \
    {                                                                                              \
        real *y = data[0], kept[512];                                                              \
        const real *x = data[1];                                                                   \
        for (int64_t begin = 0; begin < n; begin += 512) {                                         \
            int64_t count = n - begin < 512 ? n - begin : 512;                                     \
            int large = 0;                                                                         \
            memcpy(kept, x + begin, (size_t)count * sizeof *kept);                                 \
            for (int64_t i = 0; i < count; i++) {                                                  \
                real a = kept[i];                                                                  \
                y[begin + i] = (expr);                                                             \
                large |= !(size(kept[i]) <= (limit));                                              \
            }                                                                                      \
            for (int64_t i = 0; large && i < count; i++) {                                         \
                real a = kept[i];                                                                  \
                if (!(size(a) <= (limit)))                                                         \
                    y[begin + i] = (far);                                                          \
            }                                                                                      \
        }                                                                                          \
    }
#define TRIGONOMETRIC(name, turns, expr32, far32, expr64, far64)                    \
    TRIG_LOOP(name##_f32, float, fabsf, AH_TRIG_LIMIT / (turns), expr32, far32)     \
    TRIG_LOOP(name##_f64, double, fabs, AH_TRIG_LIMIT_F64 / (turns), expr64, far64) \
    FLOAT_TABLE(name);                                                              \
    RESULT_KERNEL(name, 1)
TRIGONOMETRIC(sin, 1, ah_trigf(a, 0), sinf(a), ah_trig(a, 0), sin(a))
TRIGONOMETRIC(cos, 1, ah_trigf(a, 1), cosf(a), ah_trig(a, 1), cos(a))
TRIGONOMETRIC(tan, 1, ah_tanf(a), tanf(a), ah_tan(a), tan(a))
#define SINC(sine, pi) (a == 0 ? 1 : sine(pi * a) / (pi * a))
#define SINC_SINE_F32(x) ah_trigf(x, 0)
#define SINC_SINE_F64(x) ah_trig(x, 0)
TRIGONOMETRIC(sinc, 4, SINC(SINC_SINE_F32, (float)M_PI), SINC(sinf, (float)M_PI), SINC(SINC_SINE_F64, M_PI),
              SINC(sin, M_PI))

/* Activations with numbers: c0 and c1. */
/* The probability that a normal variable is below -h, up to h = 12, with a relative error of 2e-4 up to 7: 2 to the
 * power of a polynomial, fitted to its binary logarithm. */
static inline float gelu_tail(float h)
{
    float p = AH_HORNER(fmaf, h, 1.7487564e-5f, -5.1372760e-4f, 6.5541472e-3f, -4.9255610e-2f, -4.6386713e-1f,
                        -1.1489140f, -1.0001630f);
    float shifted = p + 0x1.8p23f, r = p - (shifted - 0x1.8p23f);
    r = AH_HORNER(fmaf, r, 0.05517166f, 0.24261113f, 0.69326097f, 0.99992806f);
    return ah_bits_float(ah_float_bits(r) + (ah_float_bits(shifted) << 23));
}

/* min(|x|, 12), by the bits in one instruction; 12 where x is NaN. */
static inline float gelu_size(float x)
{
    int32_t bits = (int32_t)(ah_float_bits(x) & 0x7fffffff);
    return ah_bits_float((uint32_t)(bits < 0x41400000 ? bits : 0x41400000));
}

/* GELU and its slope to the digits that bfloat16 has. With q = gelu_tail(|x|), whose slope is -phi, they are
 * max(x, 0) - |x| q, and s or 1 - s with s = q - |x| phi = q (1 - |x| phi / q); the fraction is a polynomial. */
static inline float gelu_erf_short(float x)
{
    float h = gelu_size(x);
    return fmaf(-h, gelu_tail(h), x < 0 ? 0 : x);
}

static inline float gelu_erf_slope_short(float x)
{
    float h = gelu_size(x);
    float f = AH_HORNER(fmaf, h, 1.6839886e-3f, -1.9890567e-2f, 1.0823772e-1f, 6.3735855e-1f, 7.9772598e-1f,
                        4.7217509e-6f);
    float s = gelu_tail(h) * (1.0f - f);
    s = x < 0 ? s : 1.0f - s;
    return x == x ? s : x;
}

LOOP1(gelu_erf_f32, float, float, a *ah_normal_below(a))
LONG_LOOP1(gelu_erf_f64, double, 0.5 * a * (1.0 + ah_erf(a * AH_SQRT_HALF)))
AH_BF16_LOOP1(gelu_erf_bf16, gelu_erf_short)
FLOAT_TABLE_BF16(gelu_erf);
#if defined(AH_GELU_LANES)
static void gelu_tanh_f32(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    ah_gelu_tanh_rows(false, n, data[0], NULL, data[1]);
}
#else
LOOP1(gelu_tanh_f32, float, float, ah_gelu_tanh_of(a))
#endif
LONG_LOOP1(gelu_tanh_f64, double, 0.5 * a * (1.0 + ah_tanh(AH_SQRT_2_OVER_PI * (a + 0.044715 * a * a * a))))
AH_BF16_LOOP1(gelu_tanh_bf16, ah_gelu_tanh_of)
FLOAT_TABLE_BF16(gelu_tanh);
FLOAT_UNARY(softplus, a *c0 > c1 ? a : ah_softplusf(a * c0) / c0, a *c0 > c1 ? a : ah_log1p(ah_exp(a * c0)) / c0)
FLOAT_UNARY(leaky_relu, a > 0 ? a : a * c0, a > 0 ? a : a * c0)

AH_CPU_OP(gelu, ah_elementwise_result(c, 1, ah_elementwise_has(c, "tanh") ? gelu_tanh_loops : gelu_erf_loops))

LOOP1(isnan_f32, float, uint8_t, a != a)
LOOP1(isnan_f64, double, uint8_t, a != a)
LOOP1(isinf_f32, float, uint8_t, fabsf(a) == __builtin_inff())
LOOP1(isinf_f64, double, uint8_t, fabs(a) == __builtin_inf())
LOOP1(isfinite_f32, float, uint8_t, fabsf(a) < __builtin_inff())
LOOP1(isfinite_f64, double, uint8_t, fabs(a) < __builtin_inf())
FLOAT_TABLE(isnan);
FLOAT_TABLE(isinf);
FLOAT_TABLE(isfinite);

AH_CPU_OP(isnan, ah_elementwise_test(c, isnan_loops))
AH_CPU_OP(isinf, ah_elementwise_test(c, isinf_loops))
AH_CPU_OP(isfinite, ah_elementwise_test(c, isfinite_loops))

LOOP1(not_b8, uint8_t, uint8_t, !a)
LOOP1(not_u8, uint8_t, uint8_t, ~a)
LOOP1(not_i32, int32_t, int32_t, ~a)
LOOP1(not_i64, int64_t, int64_t, ~a)

int ah_cpu_logical_not(struct ah_call *c)
{
    static const ah_loop loops[AH_DTYPE_COUNT] = {[AH_BOOL] = not_b8};
    return ah_elementwise(c, 1, AH_BOOL, AH_BOOL, loops, NULL);
}

int ah_cpu_bitwise_not(struct ah_call *c)
{
    static const ah_loop loops[AH_DTYPE_COUNT] = {
        [AH_BOOL] = not_b8, [AH_U8] = not_u8, [AH_I32] = not_i32, [AH_I64] = not_i64};
    return ah_elementwise_result(c, 1, loops);
}

/* Fused gradients: a is the incoming gradient, b the tensor that the forward saved. */
LOOP2(relu_backward_f16, uint16_t, uint16_t, HALF_UP_TO_0(b, F16_INFINITY) ? 0 : a)
LOOP2(relu_backward_bf16, uint16_t, uint16_t, HALF_UP_TO_0(b, BF16_INFINITY) ? 0 : a)
LOOP2(relu_backward_f32, float, float, b <= 0 ? 0 : a)
LOOP2(relu_backward_f64, double, double, b <= 0 ? 0 : a)
static const ah_loop relu_backward_loops[AH_DTYPE_COUNT] = {
    [AH_F16] = relu_backward_f16, [AH_BF16] = relu_backward_bf16,
    [AH_F32] = relu_backward_f32, [AH_F64] = relu_backward_f64};
RESULT_KERNEL(relu_backward, 2)
#define HALVES_BINARY(name, expr32, expr64)                                    \
    LOOP2(name##_f32, float, float, expr32)                                    \
    LOOP2(name##_f64, double, double, expr64)                                  \
    AH_HALF_LOOPS2(name, expr32)                                               \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                      \
        AH_HALF_ENTRIES(name) [AH_F32] = name##_f32, [AH_F64] = name##_f64};   \
    RESULT_KERNEL(name, 2)
HALVES_BINARY(tanh_backward, a *(1.0f - b * b), a *(1.0 - b * b))
HALVES_BINARY(sigmoid_backward, a *(1.0f - b) * b, a *(1.0 - b) * b)
FLOAT_BINARY(silu_backward, a *ah_silu_slope(b), a *ah_silu_slope_f64(b))
/* 0 below, x / 3 + 1/2 inside, 1 above (and where x is NaN). */
FLOAT_BINARY(hardswish_backward, b > -3 && b < 3 ? a *(b / 3 + 0.5f) : b <= -3 ? 0 : a,
               b > -3 && b < 3 ? a *(b / 3 + 0.5) : b <= -3 ? 0 : a)
FLOAT_BINARY(leaky_relu_backward, b > 0 ? a : a * c0, b > 0 ? a : a * c0)
LOOP2(gelu_erf_backward_f32, float, float, a *ah_gelu_erf_slope(b))
LONG_LOOP2(gelu_erf_backward_f64, double, a *ah_gelu_erf_slope_f64(b))
AH_BF16_LOOP2(gelu_erf_backward_bf16, gelu_erf_slope_short)
FLOAT_TABLE_BF16(gelu_erf_backward);
LOOP2(gelu_tanh_backward_any_f32, float, float, a *ah_gelu_tanh_slope(b))
static void gelu_tanh_backward_f32(int64_t n, void *const *data, const int64_t *step, const void *context)
{
#if defined(AH_GELU_LANES)
    if (step[1] && step[2]) {
        ah_gelu_tanh_rows(true, n, data[0], data[1], data[2]);
        return;
    }
#endif
    gelu_tanh_backward_any_f32(n, data, step, context);
}
LONG_LOOP2(gelu_tanh_backward_f64, double, a *ah_gelu_tanh_slope_f64(b))
AH_BF16_LOOP2(gelu_tanh_backward_bf16, ah_gelu_tanh_slope)
FLOAT_TABLE_BF16(gelu_tanh_backward);

AH_CPU_OP(gelu_backward, ah_elementwise_result(c, 2, ah_elementwise_has(c, "tanh") ? gelu_tanh_backward_loops
                                                                                   : gelu_erf_backward_loops))
