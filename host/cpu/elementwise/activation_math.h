/* GELU and the slopes of activations, for loops over elements; functions of several files. */
#pragma once

#include <math.h>

#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/float64_vector.h"

#define AH_SQRT_2_OVER_PI 0.79788456080286535588
#define AH_SQRT_HALF 0.70710678118654752440
#define AH_INV_SQRT_2PI 0.39894228040143267794

static inline float ah_gelu_tanh_of(float a)
{
    return 0.5f * a * (1.0f + ah_tanhf((float)AH_SQRT_2_OVER_PI * fmaf(0.044715f * a * a, a, a)));
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
    float shifted = r + 0x1.8p23f, f = r - (shifted - 0x1.8p23f), f2 = f * f;
    float p = fmaf(fmaf(0.00015353362f, f, 0.0013398875f), f, 0.00961843692f);
    p = fmaf(fmaf(p, f, 0.0555033237f), f2, fmaf(0.240226477f, f, 0.693147182f));
    p = fmaf(p, f, 1.0f);
    float above = r > -125.0f ? ah_bits_float(ah_float_bits(p) + (ah_float_bits(shifted) << 23)) : 0.0f;
    return x > 0.0f ? 1.0f - above : above;
}

static inline float ah_gelu_erf_slope(float x)
{
    return fmaf(x, ah_expf(-0.5f * x * x) * (float)AH_INV_SQRT_2PI, ah_normal_below(x));
}

static inline double ah_gelu_erf_slope_f64(double x)
{
    return 0.5 * (1.0 + ah_erf(x * AH_SQRT_HALF)) + x * ah_exp(-0.5 * x * x) * AH_INV_SQRT_2PI;
}

static inline float ah_gelu_tanh_slope(float x)
{
    float u = (float)AH_SQRT_2_OVER_PI * fmaf(0.044715f * x * x, x, x), t = ah_tanhf(u);
    float du = (float)AH_SQRT_2_OVER_PI * fmaf(0.134145f, x * x, 1.0f);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du;
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
