/* Hyperbolic functions and their inverses that the compiler turns into vector code: no branches, no calls; right to
 * a unit or two in the last place. */
#pragma once

#include <math.h>

#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/special_vector.h"

/* By their series up to 1, beyond by halves of exponentials, which do not overflow before the result. */
static inline float ah_sinhf(float x)
{
    float m = fabsf(x), z = x * x, half = ah_exp_timesf(m, -1);
    float p = AH_HORNER(fmaf, z, 1.0f / 362880, 1.0f / 5040, 1.0f / 120, 1.0f / 6);
    float small = fmaf(p * z, x, x), large = copysignf(half - 0.25f / half, x);
    return m > 1 ? large : small;
}

static inline double ah_sinh(double x)
{
    double m = fabs(x), z = x * x, half = ah_exp_times(m, -1);
    double p = AH_HORNER(fma, z, 1.0 / 355687428096000, 1.0 / 1307674368000, 1.0 / 6227020800, 1.0 / 39916800,
                         1.0 / 362880, 1.0 / 5040, 1.0 / 120, 1.0 / 6);
    double small = fma(p * z, x, x), large = copysign(half - 0.25 / half, x);
    return m > 1 ? large : small;
}

static inline float ah_coshf(float x)
{
    float half = ah_exp_timesf(fabsf(x), -1);
    return half + 0.25f / half;
}

static inline double ah_cosh(double x)
{
    double half = ah_exp_times(fabs(x), -1);
    return half + 0.25 / half;
}

/* log(m + sqrt(m^2 + 1)), in double; small ones by the series. */
static inline float ah_asinhf(float x)
{
    double m = fabs((double)x), z = m * m;
    double small = fma(fma(0.075, z, -1.0 / 6) * z, m, m), large = ah_vector_log(m + sqrt(z + 1));
    float value = copysignf((float)(m < 1e-3 ? small : large), x);
    return m < 1e39 ? value : x;
}

static inline float ah_acoshf(float x)
{
    double a = (double)x;
    float value = (float)ah_vector_log(a + sqrt(fma(a, a, -1.0)));
    value = x > 3.4028234e38f ? x : value;
    return x >= 1 ? value : __builtin_nanf("");
}

/* Where the 1 no longer counts, log 2m. */
static inline double ah_asinh(double x)
{
    double m = fabs(x), c = m < 1e9 ? m : 1, inner = c + c * c / (1 + sqrt(fma(c, c, 1.0)));
    double value = m < 1e9 ? ah_log1p(inner) : ah_log(m) + M_LN2;
    return x != x ? x : copysign(value, x);
}

static inline double ah_acosh(double x)
{
    double t = (x < 1e9 ? x : 1) - 1, near = ah_log1p(t + sqrt(fma(t, t, 2 * t)));
    double value = x < 1e9 ? near : ah_log(x) + M_LN2;
    return x >= 1 ? value : __builtin_nan("");
}

/* Half of log((1 + x) / (1 - x)). */
static inline float ah_atanhf(float x)
{
    float size = fabsf(x), value = copysignf(0.5f * ah_log1pf(2 * size / (1 - size)), x);
    value = size == 1 ? x * __builtin_inff() : value;
    return x == 0 ? x : size <= 1 ? value : __builtin_nanf("");
}

static inline double ah_atanh(double x)
{
    double size = fabs(x), value = copysign(0.5 * ah_log1p(2 * size / (1 - size)), x);
    value = size == 1 ? x * __builtin_inf() : value;
    return x == 0 ? x : size <= 1 ? value : __builtin_nan("");
}
