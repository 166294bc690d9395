/* Elementwise kernels of one input beyond the everyday ones (cpu/elementwise/elementwise_unary.c): the rest of libm,
 * special functions (cpu/elementwise/special.h, those of float32 in cpu/elementwise/special_vector.h), and tests of
 * single values. */
#include <math.h>

#include "cpu/elementwise/angle_vector.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/special.h"
#include "cpu/elementwise/special_vector.h"

FLOAT_UNARY(asin, ah_asinf(a), asin(a))
FLOAT_UNARY(acos, ah_acosf(a), acos(a))
FLOAT_UNARY(sinh, sinhf(a), sinh(a))
FLOAT_UNARY(cosh, coshf(a), cosh(a))
FLOAT_UNARY(asinh, asinhf(a), asinh(a))
FLOAT_UNARY(acosh, acoshf(a), acosh(a))
FLOAT_UNARY(atanh, ah_atanhf(a), atanh(a))
FLOAT_UNARY(exp2, ah_exp2f(a), exp2(a))
FLOAT_UNARY(erfc, ah_erfcf(a), erfc(a))
FLOAT_UNARY(frac, a - truncf(a), a - trunc(a))
FLOAT_UNARY(deg2rad, a * (float)(M_PI / 180), a * (M_PI / 180))
FLOAT_UNARY(rad2deg, a * (float)(180 / M_PI), a * (180 / M_PI))
FLOAT_UNARY(sinc, a == 0 ? 1 : sinf((float)M_PI * a) / ((float)M_PI * a), a == 0 ? 1 : sin(M_PI * a) / (M_PI * a))
FLOAT_UNARY(lgamma, ah_lgammaf(a), ah_lgamma(a))
FLOAT_UNARY(digamma, ah_digammaf(a), ah_digamma(a))
FLOAT_UNARY(erfinv, ah_erfinvf(a), ah_erfinv(a))
FLOAT_UNARY(ndtri, (float)ah_ndtri(a), ah_ndtri(a))
FLOAT_UNARY(i0, ah_i0f(a), ah_bessel_i(0, a))
FLOAT_UNARY(i1, ah_i1f(a), ah_bessel_i(1, a))

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
TEST(signbit, signbit(a) != 0)
