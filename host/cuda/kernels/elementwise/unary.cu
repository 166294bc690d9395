/* Elementwise functions of one input, and tests of single values. */
#include "cuda/kernels/lib/elementwise.cuh"

/* Integers (and bool, as bytes) wrap around: their expressions work on the unsigned type. */
#define NUMBERS(name, byte_expr, int_expr, float_expr)                                                         \
    AH_EW1(name##_u8, uint8_t, uint8_t, byte_expr)                                                             \
    AH_EW1(name##_i32, int32_t, int32_t, int_expr)                                                             \
    AH_EW1(name##_i64, int64_t, int64_t, int_expr)                                                             \
    AH_EW1_FLOATS(name, float_expr)

NUMBERS(neg, 0 - a, 0 - static_cast<uint64_t>(a), -a)
NUMBERS(abs, a, a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a), a < 0 ? -a : a + 0)
NUMBERS(sign, a != 0, (a > 0) - (a < 0), (a > 0) - (a < 0))
NUMBERS(square, a *a, static_cast<uint64_t>(a) * static_cast<uint64_t>(a), a *a)
NUMBERS(relu, a, a < 0 ? 0 : a, a < 0 ? T(0) : a)

AH_EW1_FLOATS(floor, floor(a))
AH_EW1_FLOATS(ceil, ceil(a))
AH_EW1_FLOATS(round, rint(a))
AH_EW1_FLOATS(trunc, trunc(a))
AH_EW1_FLOATS(frac, a - trunc(a))

AH_EW1_FLOATS(reciprocal, T(1) / a)
AH_EW1_FLOATS(sqrt, sqrt(a))
AH_EW1_FLOATS(rsqrt, T(1) / sqrt(a))
AH_EW1_FLOATS(exp, exp(a))
AH_EW1_FLOATS(exp2, exp2(a))
AH_EW1_FLOATS(expm1, expm1(a))
AH_EW1_FLOATS(log, log(a))
AH_EW1_FLOATS(log1p, log1p(a))
AH_EW1_FLOATS(log2, log2(a))
AH_EW1_FLOATS(log10, log10(a))
AH_EW1_FLOATS(sin, sin(a))
AH_EW1_FLOATS(cos, cos(a))
AH_EW1_FLOATS(tan, tan(a))
AH_EW1_FLOATS(asin, asin(a))
AH_EW1_FLOATS(acos, acos(a))
AH_EW1_FLOATS(atan, atan(a))
AH_EW1_FLOATS(sinh, sinh(a))
AH_EW1_FLOATS(cosh, cosh(a))
AH_EW1_FLOATS(tanh, tanh(a))
AH_EW1_FLOATS(asinh, asinh(a))
AH_EW1_FLOATS(acosh, acosh(a))
AH_EW1_FLOATS(atanh, atanh(a))
AH_EW1_FLOATS(erf, erf(a))
AH_EW1_FLOATS(erfc, erfc(a))
AH_EW1_FLOATS(lgamma, lgamma(a))
AH_EW1_FLOATS(deg2rad, a *T(3.14159265358979323846 / 180))
AH_EW1_FLOATS(rad2deg, a *T(180 / 3.14159265358979323846))
AH_EW1_FLOATS(sinc, a == 0 ? T(1) : sin(T(3.14159265358979323846) * a) / (T(3.14159265358979323846) * a))

/* Each is 0 or 1; nan fails every comparison. */
#define TEST(name, expr) \
    AH_EW1(name##_f32, uint8_t, float, expr) AH_EW1(name##_f64, uint8_t, double, expr)
TEST(isnan, a != a)
TEST(isinf, fabs(a) == T(INFINITY))
TEST(isfinite, fabs(a) < T(INFINITY))
TEST(isposinf, a == T(INFINITY))
TEST(isneginf, a == -T(INFINITY))
TEST(signbit, copysign(T(1), a) < 0)

AH_EW1(logical_not_b8, uint8_t, uint8_t, !a)
AH_EW1(bitwise_not_u8, uint8_t, uint8_t, ~a)
AH_EW1(bitwise_not_i32, int32_t, int32_t, ~a)
AH_EW1(bitwise_not_i64, int64_t, int64_t, ~a)

/* c0, c1, c2: the replacements of nan and the infinities. */
AH_EW1_FLOATS(nan_to_num, a != a ? c0 : a == T(INFINITY) ? c1 : a == -T(INFINITY) ? c2 : a)
/* log(x / (1 - x)), x clamped to c0..c1 first. */
AH_EW1_FLOATS(logit, log((a < c0 ? c0 : a > c1 ? c1 : a) / (T(1) - (a < c0 ? c0 : a > c1 ? c1 : a))))
