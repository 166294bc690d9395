/* GELU and the slopes of activations, for loops over elements; functions of several files. */
#pragma once

#include <math.h>

#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/float64_vector.h"

#define AH_SQRT_2_OVER_PI 0.79788456080286535588
#define AH_SQRT_HALF 0.70710678118654752440
#define AH_INV_SQRT_2PI 0.39894228040143267794

/* 2^t for t from -126 to 128, whose power is infinity; a NaN stays. */
static inline float ah_exp2_middle(float t)
{
    float shifted = t + 0x1.8p23f, f = t - (shifted - 0x1.8p23f);
    float p = AH_HORNER(fmaf, f, 0.00015353362f, 0.0013398875f, 0.00961843692f, 0.0555033237f, 0.240226477f,
                        0.693147182f, 1.0f);
    return ah_bits_float(ah_float_bits(p) + (ah_float_bits(shifted) << 23));
}

/* `bound` where `test`, else x, without a branch: GCC would compute all that follows for the constant, and its vectors
 * would choose between many such results. */
static inline float ah_bound_where(int test, float bound, float x)
{
    uint32_t mask = 0u - (uint32_t)test;
    return ah_bits_float((ah_float_bits(bound) & mask) | (ah_float_bits(x) & ~mask));
}

/* 2^t, where 1 / (1 + 2^t) is the factor (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 of GELU's form with tanh, to
 * a few units in the last place also where the sum in it is close to 0. `most`: the largest t, of at most 128. */
static inline float ah_gelu_tanh_power(float x, float most)
{
    const float scale = (float)(-2 * AH_SQRT_2_OVER_PI * M_LOG2E), cubic = (float)(0.044715 * scale);
    float t = x * fmaf(cubic * x, x, scale);
    t = ah_bound_where(t > most, most, t);
    return ah_exp2_middle(ah_bound_where(t < -126.0f, -126.0f, t));
}

static inline float ah_gelu_tanh_of(float a)
{
    return a * (1.0f / (1.0f + ah_gelu_tanh_power(a, 128.0f)));
}

/* The normal distribution's share below x, to 8e-6 of itself below -2 and 2e-7 elsewhere: that above |x| is 2 to the
 * power of a polynomial. */
static inline float ah_normal_below(float x)
{
    float m = fabsf(x), m2 = m * m, m4 = m2 * m2; /* in pairs: a chain of steps fills the processor's queue */
    float low = fmaf(fmaf(0.00706341257f, m, -0.0525192432f), m2, fmaf(-0.459195048f, m, -1.15110743f));
    float high = fmaf(fmaf(-8.35919673e-06f, m, 6.18220438e-05f), m2, fmaf(-0.000231099446f, m, -9.75492294e-05f));
    high = fmaf(fmaf(-1.86869205e-08f, m, 6.06832259e-07f), m4, high);
    float r = fmaf(fmaf(high, m4, low), m, -0.99999994f);
    float above = r > -125.0f ? ah_exp2_middle(r) : 0.0f;
    return x > 0.0f ? 1.0f - above : above;
}

static inline float ah_gelu_erf_slope(float x)
{
    float t = x * x * (float)(-0.5 * M_LOG2E), density = ah_exp2_middle(ah_bound_where(t < -126.0f, -126.0f, t));
    return fmaf(x * (float)AH_INV_SQRT_2PI, density, ah_normal_below(x));
}

static inline double ah_gelu_erf_slope_f64(double x)
{
    return 0.5 * (1.0 + ah_erf(x * AH_SQRT_HALF)) + x * ah_exp(-0.5 * x * x) * AH_INV_SQRT_2PI;
}

static inline float ah_gelu_tanh_slope(float x)
{
    const float scale = (float)(2 * AH_SQRT_2_OVER_PI), cubic = (float)(2 * AH_SQRT_2_OVER_PI * 0.134145);
    float power = ah_gelu_tanh_power(x, 126.0f), factor = 1.0f / (1.0f + power);
    return fmaf(power * factor * factor, x * fmaf(cubic * x, x, scale), factor);
}

static inline double ah_gelu_tanh_slope_f64(double x)
{
    double t = ah_tanh(AH_SQRT_2_OVER_PI * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * AH_SQRT_2_OVER_PI * (1.0 + 0.134145 * x * x);
}

static inline float ah_silu_slope(float x)
{
    float s = ah_sigmoidf(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

static inline double ah_silu_slope_f64(double x)
{
    double s = ah_sigmoid(x);
    return s * (1.0 + x * (1.0 - s));
}
