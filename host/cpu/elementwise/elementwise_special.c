/* Elementwise kernels of one input beyond the everyday ones (cpu/elementwise/elementwise_unary.c): the rest of libm,
 * special functions (cpu/elementwise/special.h, those of float32 in cpu/elementwise/special_vector.h), and tests of
 * single values. */
#include <math.h>

#include "cpu/elementwise/angle_vector.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/special.h"
#include "cpu/elementwise/special_vector.h"

#define FLOATS(name, expr32, expr64)                      \
    LOOP1(name##_f32, float, float, expr32)               \
    LOOP1(name##_f64, double, double, expr64)             \
    FLOAT_TABLE(name);                                    \
    int ah_cpu_##name(struct ah_call *c)                  \
    {                                                     \
        return ah_elementwise_result(c, 1, name##_loops); \
    }

FLOATS(asin, ah_asinf(a), asin(a))
FLOATS(acos, ah_acosf(a), acos(a))
FLOATS(sinh, sinhf(a), sinh(a))
FLOATS(cosh, coshf(a), cosh(a))
FLOATS(asinh, asinhf(a), asinh(a))
FLOATS(acosh, acoshf(a), acosh(a))
FLOATS(atanh, ah_atanhf(a), atanh(a))
FLOATS(exp2, ah_exp2f(a), exp2(a))
FLOATS(erfc, ah_erfcf(a), erfc(a))
FLOATS(frac, a - truncf(a), a - trunc(a))
FLOATS(deg2rad, a * (float)(M_PI / 180), a * (M_PI / 180))
FLOATS(rad2deg, a * (float)(180 / M_PI), a * (180 / M_PI))
FLOATS(sinc, a == 0 ? 1 : sinf((float)M_PI * a) / ((float)M_PI * a), a == 0 ? 1 : sin(M_PI * a) / (M_PI * a))
FLOATS(lgamma, ah_lgammaf(a), ah_lgamma(a))
FLOATS(digamma, ah_digammaf(a), ah_digamma(a))
FLOATS(erfinv, ah_erfinvf(a), ah_erfinv(a))
FLOATS(ndtri, (float)ah_ndtri(a), ah_ndtri(a))
FLOATS(i0, ah_i0f(a), ah_bessel_i(0, a))
FLOATS(i1, ah_i1f(a), ah_bessel_i(1, a))

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
