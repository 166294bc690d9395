/* Functions of two float32 numbers that the compiler turns into vector code: no branches, no calls. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/elementwise/special_vector.h"

/* The remainder of a / b rounded towards zero, exact where the quotient is below 2^28 (or nan): it then fits in double,
 * far enough from the next whole number to be rounded down as it should be, and the product is exact. */
#define AH_FMOD_LIMIT 0x1p28f

static inline bool ah_fmod_is_short(float a, float b)
{
    return !(fabsf(a) > AH_FMOD_LIMIT * fabsf(b)) || fabsf(a) > 3.4028234e38f;
}

static inline float ah_short_fmodf(float a, float b)
{
    double x = (double)a, y = (double)b, rest = fma(-trunc(x / y), y, x);
    float value = copysignf((float)rest, a);
    return fabsf(b) > 3.4028234e38f && fabsf(a) <= 3.4028234e38f ? a : value;
}

/* The same for any two numbers, by libm where the quotient is large. */
static inline float ah_fmodf(float a, float b)
{
    return ah_fmod_is_short(a, b) ? ah_short_fmodf(a, b) : fmodf(a, b);
}

/* The next number from a on the way to b: integers in the order of the floats are one apart. */
static inline float ah_nextafterf(float a, float b)
{
    uint32_t bits = ah_float_bits(a), up = (a < b) == (a > 0) ? bits + 1 : bits - 1;
    float value = a == 0 ? copysignf(0x1p-149f, b) : ah_bits_float(up);
    value = a == b ? b : value;
    return a != a || b != b ? a + b : value;
}

static inline float ah_hypotf(float a, float b)
{
    double x = (double)a, y = (double)b;
    float value = (float)sqrt(x * x + y * y);
    return fabsf(a) > 3.4028234e38f || fabsf(b) > 3.4028234e38f ? __builtin_inff() : value;
}

/* The logarithm and the exponential in as many digits of double as float powers need, 2e-14 and 4e-11: ah_vector_log
 * and ah_vector_exp with shorter series, and a division in float32 that a step of Newton's makes good. */
static inline double ah_log_for_power(double x)
{
    uint64_t bits = ah_double_bits(x), biased = (bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;
    double k = ah_bits_double(biased | 0x4330000000000000u) - (0x1p52 + 1023);
    double f = ah_bits_double(bits - ((biased - 1023) << 52)) - 1, under = 2 + f;
    double near = (double)(1.0f / (float)under), s = f * (near * fma(-under, near, 2.0)), z = s * s;
    double p = AH_HORNER(fma, z, 0.19610287884089883, 0.22174091626843423, 0.28572170142154679, 0.39999994850434673,
                         0.66666666679730757, 1.9999999999999474);
    return fma(k, 0x1.62e42fefa39efp-1, p * s);
}

static inline double ah_exp_for_power(double x)
{
    double shifted = fma(x, 0x1.71547652b82fep0, 0x1.8p52), n = shifted - 0x1.8p52;
    double r = fma(n, -0x1.62e42fefa39efp-1, x), p = 0.00019775118908124179;
    p = AH_HORNER(fma, r, p, 0.0013948226356418694, 0.0083335614314018047, 0.041666224786196422, 0.16666665122715338,
                  0.50000001047628229, 1.000000000243813, 0.99999999996157141);
    return p * ah_bits_double((ah_double_bits(shifted) + 1023) << 52);
}

/* |x|^y is exp(y log |x|), in double; negative x have powers of whole numbers, which keep the sign of odd ones. */
static inline float ah_powf(float x, float y)
{
    const float infinity = __builtin_inff(), nan = __builtin_nanf("");
    float size = fabsf(x), whole = rintf(y), half = whole * 0.5f;
    int plain = (size > 0) & (size < infinity), is_whole = whole == y, odd = is_whole & (rintf(half) != half);
    double e = (double)y * ah_log_for_power((double)(plain ? size : 1.0f));
    e = e < -700 ? -700 : e > 700 ? 700 : e;
    float value = (float)ah_exp_for_power(e);
    float end = (size > 0) == (y > 0) ? infinity : 0.0f;
    value = size > 0 ? value : end;
    value = size < infinity ? value : end;
    value = size == 1 ? 1.0f : value; /* also to the power of infinity */
    uint32_t negative = ah_float_bits(x) >> 31;
    value = ah_bits_float(ah_float_bits(value) | (negative & (uint32_t)odd) << 31);
    value = ((x < 0) & (x > -infinity) & !is_whole) ? nan : value;
    value = ((x != x) | (y != y)) ? nan : value;
    return ((x == 1) | (y == 0)) ? 1.0f : value;
}
