/* Elementwise kernels of one input beyond the everyday ones (cpu/elementwise/elementwise_unary.c): the rest of libm,
 * special functions (cpu/elementwise/special.h, those of float32 in cpu/elementwise/special_vector.h), and tests of
 * single values. */
#include <math.h>

#include "cpu/elementwise/angle_vector.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/float64_vector.h"
#include "cpu/elementwise/half_loops.h"
#include "cpu/elementwise/hyperbolic_vector.h"
#include "cpu/elementwise/special.h"
#include "cpu/elementwise/special_vector.h"

LONG_UNARY(asin, ah_asinf(a), ah_asin(a))
LONG_UNARY(acos, ah_acosf(a), ah_acos(a))
LONG_UNARY(sinh, ah_sinhf(a), ah_sinh(a))
LONG_UNARY(cosh, ah_coshf(a), ah_cosh(a))
LONG_UNARY(asinh, ah_asinhf(a), ah_asinh(a))
LONG_UNARY(acosh, ah_acoshf(a), ah_acosh(a))
LONG_UNARY(atanh, ah_atanhf(a), ah_atanh(a))

/* LONG_UNARY, with a function for bfloat16, which has fewer digits. */
#define LONG_UNARY_BF16(name, expr32, expr64, of_bf16) \
    AH_BF16_LOOP1(name##_bf16, of_bf16)                \
    LONG_LOOP1(name##_f32, float, expr32)              \
    LONG_LOOP1(name##_f64, double, expr64)             \
    FLOAT_TABLE_BF16(name);                            \
    RESULT_KERNEL(name, 1)
LONG_UNARY_BF16(erfc, ah_erfcf(a), ah_erfc(a), ah_erfc_short)
LONG_UNARY_BF16(log10, ah_log10f(a), ah_log10(a), ah_log10_short)
FLOAT_UNARY(frac, a - truncf(a), a - trunc(a))
FLOAT_UNARY(deg2rad, a * (float)(M_PI / 180), a * (M_PI / 180))
FLOAT_UNARY(rad2deg, a * (float)(180 / M_PI), a * (180 / M_PI))
LONG_UNARY(lgamma, ah_lgammaf(a), ah_lgamma(a))
LONG_UNARY(digamma, ah_digammaf(a), ah_digamma(a))
LONG_UNARY(erfinv, ah_erfinvf(a), ah_erfinv(a))
FLOAT_UNARY(ndtri, (float)ah_ndtri(a), ah_ndtri(a))
LONG_UNARY(i0, ah_i0f(a), ah_bessel_i(0, a))
LONG_UNARY(i1, ah_i1f(a), ah_bessel_i(1, a))

#define TEST(name, expr)                                                                                        \
    LOOP1(name##_f32, float, uint8_t, expr)                                                                     \
    LOOP1(name##_f64, double, uint8_t, expr)                                                                    \
    FLOAT_TABLE(name);                                                                                          \
    int ah_cpu_##name(struct ah_call *c)                                                                        \
    {                                                                                                           \
        return ah_elementwise_test(c, name##_loops);                                                            \
    }
TEST(isposinf, a == __builtin_inf())
TEST(isneginf, a == -__builtin_inf())

LOOP1(signbit_f32, float, uint8_t, ah_float_bits(a) >> 31)
LOOP1(signbit_f64, double, uint8_t, ah_double_bits(a) >> 63)
LOOP1(signbit_i32, int32_t, uint8_t, a < 0)
LOOP1(signbit_i64, int64_t, uint8_t, a < 0)

int ah_cpu_signbit(struct ah_call *c)
{
    static const ah_loop loops[AH_DTYPE_COUNT] = {
        [AH_I32] = signbit_i32, [AH_I64] = signbit_i64, [AH_F32] = signbit_f32, [AH_F64] = signbit_f64};
    return ah_elementwise_test(c, loops);
}
