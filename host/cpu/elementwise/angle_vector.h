/* Tangents and inverse trigonometric functions of float32 that the compiler turns into vector code: no branches, no
 * calls; polynomials by weighted least squares, about one unit in the last place. */
#pragma once

#include <math.h>

#include "cpu/elementwise/elementwise_math.h"

/* pi/2 = AH_HALF_PI + AH_HALF_PI_REST to twice float's digits. */
#define AH_HALF_PI 0x1.921fb6p0f
#define AH_HALF_PI_REST (-0x1.777a5cp-25f)

/* For |x| up to AH_TRIG_LIMIT: the remainder of multiples of pi/2 is held in two parts, the tangent of which is turned
 * in odd quadrants. */
static inline float ah_tanf(float x)
{
    float shifted = fmaf(x, 0.63661977236758134308f, 0x1.8p23f), n = shifted - 0x1.8p23f;
    float high = fmaf(n, -AH_HALF_PI, x), part = n * -AH_HALF_PI_REST, r = high + part, back = r - high;
    float rest = (high - (r - back)) + (part - back); /* the rounding error of r */
    rest += fmaf(n, -AH_HALF_PI_REST, -part) + n * 0x1.ee59dap-50f;
    float z = r * r, p = 0.00441377703f;
    p = AH_HORNER(fmaf, z, p, 9.74653813e-06f, 0.0109021664f, 0.0212550554f, 0.0540655218f, 0.133326098f,
                  0.333333522f);
    float low = fmaf(p * z, r, fmaf(z, rest, rest)), t = r + low;
    /* -1 / (r + low) with the rest of both roundings. */
    float inverse = -1.0f / t, left = fmaf(inverse, t, 1.0f), lost = low - (t - r);
    float turned = fmaf(inverse, fmaf(inverse, lost, left), inverse);
    float value = ah_float_bits(shifted) & 1 ? turned : t;
    return x == 0 ? x : value;
}

/* atan q - q for q of 0..1. */
static inline float ah_atan_tail(float q)
{
    float z = q * q, p = -0.00182717f;
    p = AH_HORNER(fmaf, z, p, 0.0110643152f, -0.0314554684f, 0.0582343191f, -0.084194459f, 0.109575719f, -0.142652452f,
                  0.199986383f, -0.333333015f);
    return p * z * q;
}

static inline float ah_atanf(float x)
{
    float size = fabsf(x), q = size > 1 ? 1 / size : size, tail = ah_atan_tail(q);
    float value = copysignf(size > 1 ? (AH_HALF_PI - q) - (tail - AH_HALF_PI_REST) : q + tail, x);
    return x != x ? x : value;
}

/* (asin s - s) / s for s^2 = z up to 1/4. */
static inline float ah_asin_series(float z)
{
    float p = AH_HORNER(fmaf, z, 0.0375651866f, 0.0144026158f, 0.0318176076f, 0.0445157215f, 0.0750051066f,
                        0.166666597f);
    return p * z;
}

/* Above 1/2 by asin x = pi/2 - 2 asin(sqrt((1 - x) / 2)). There the root's own rounding counts; the factor of its
 * square's error is 1 / 2s, for which a straight line is near enough. */
static inline float ah_asinf(float x)
{
    float size = fabsf(x), rest = 0.5f * (1 - size), z = size > 0.5f ? rest : x * x;
    float s = size > 0.5f ? sqrtf(rest > 0 ? rest : 0) : size, tail = ah_asin_series(z) * s;
    float lost = fmaf(-s, s, z) * fmaf(-2.6f, s, 2.35f);
    float far = (AH_HALF_PI - 2 * s) - (2 * (tail + lost) - AH_HALF_PI_REST);
    float value = copysignf(size > 0.5f ? far : s + tail, x);
    return size <= 1 ? value : __builtin_nanf("");
}

static inline float ah_acosf(float x)
{
    float size = fabsf(x), rest = 0.5f * (1 - size), z = size > 0.5f ? rest : x * x;
    float s = size > 0.5f ? sqrtf(rest > 0 ? rest : 0) : x, a = fmaf(ah_asin_series(z), s, s);
    float near = x > 0 ? 2 * a : 2 * AH_HALF_PI - (2 * a - 2 * AH_HALF_PI_REST);
    float value = size > 0.5f ? near : AH_HALF_PI - (a - AH_HALF_PI_REST);
    return size <= 1 ? value : __builtin_nanf("");
}

/* Arc tangent for 0..1: Chebyshev interpolation of atan(sqrt z) / sqrt z, relative error 3e-10. */
static inline double ah_vector_atan_unit(double q)
{
    double z = q * q, p = -0.00066339524137640758;
    p = AH_HORNER(fma, z, p, 0.0047324829987939873, -0.015828319890303203, 0.033826215081032, -0.05395667730662497,
                  0.072282781676354241, -0.089741718956288824, 0.11091922949633487, -0.14283813253845248,
                  0.19999901102031373, -0.3333333129088546, 0.99999999992930344);
    return p * q;
}

static inline float ah_atan2f(float y, float x)
{
    double over = fabs((double)y), under = fabs((double)x);
    int steep = over > under, endless = over > 1e39 && under > 1e39;
    double small = steep ? under : over, large = steep ? over : under;
    double q = endless ? 1 : small / (large > 0 ? large : 1), a = ah_vector_atan_unit(q);
    a = steep ? M_PI_2 - a : a;
    a = ah_float_bits(x) >> 31 ? M_PI - a : a;
    float value = copysignf((float)a, y);
    return x != x || y != y ? x + y : value;
}
