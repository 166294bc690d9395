/* Float32 functions that the compiler turns into vector code: no branches, no calls, no tables, about one unit in
 * the last place. They behave like libm's at infinities, zeros, subnormals and NaN. Results are the same in vector
 * bodies and scalar tails. Also for softmax and losses. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "base/numeric/bits.h"
#include "base/numeric/polynomial.h"

/* c = n ln 2 + r with |r| <= ln 2 / 2: returns n (two's complement); e^r is 1 + r + p r^2. */
static inline uint32_t ah_exp_parts(float c, float *remainder, float *polynomial)
{
    float shifted = fmaf(c, 0x1.715476p0f, 0x1.8p23f);
    float n = shifted - 0x1.8p23f;
    float r = fmaf(n, -0x1.62e4p-1f, c);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = AH_HORNER(fmaf, r, 0.000198527617612853646278381f, 0.00139304355252534151077271f,
                        0.00833336077630519866943359f, 0.0416664853692054748535156f, 0.166666671633720397949219f,
                        0.5f);
    *remainder = r;
    *polynomial = p;
    return ah_float_bits(shifted) - 0x4b400000u;
}

/* e^x 2^times, for `times` of -1 or 0. The scale 2^n is applied in two halves, so that overflow and subnormals result
 * from the multiplications. Limits of both signs are one minimum: GCC makes seven instructions of a limit below and
 * another one above. */
static inline float ah_exp_timesf(float x, int32_t times)
{
    float m = fabsf(x), r, p;
    uint32_t power = ah_exp_parts(copysignf(m > 105.0f ? 105.0f : m, x), &r, &p);
    p = fmaf(r * r, p, r) + 1.0f;
    int32_t k = (int32_t)power + times;
    int32_t half = k >> 1;
    return p * ah_bits_float((uint32_t)(half + 127) << 23) * ah_bits_float((uint32_t)(k - half + 127) << 23);
}

static inline float ah_expf(float x)
{
    return ah_exp_timesf(x, 0);
}

/* The same in double: c = n ln 2 + r; returns n. The polynomial is the exponential series to the 13th power. */
static inline int64_t ah_exp_parts_f64(double c, double *remainder, double *polynomial)
{
    double shifted = fma(c, 0x1.71547652b82fep0, 0x1.8p52), n = shifted - 0x1.8p52;
    double r = fma(n, -0x1.62e42fefa3800p-1, c);
    r = fma(n, -0x1.ef35793c76730p-45, r);
    *polynomial = AH_HORNER(fma, r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                            1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
    *remainder = r;
    return (int64_t)(ah_double_bits(shifted) - 0x4338000000000000u);
}

/* e^x 2^times in double, to a unit in the last place. */
static inline double ah_exp_times(double x, int64_t times)
{
    double c = x > 711.0 ? 711.0 : x, r, p;
    c = c < -746.0 ? -746.0 : c;
    int64_t k = ah_exp_parts_f64(c, &r, &p) + times, half = k >> 1;
    p = fma(r * r, p, r) + 1.0;
    return p * ah_bits_double((uint64_t)(half + 1023) << 52) * ah_bits_double((uint64_t)(k - half + 1023) << 52);
}

static inline double ah_exp(double x)
{
    return ah_exp_times(x, 0);
}

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1), which keeps small results exact to the last bit or two. */
static inline double ah_expm1(double x)
{
    double c = x > 709.0 ? 709.0 : x, r, p;
    c = c < -60.0 ? -60.0 : c;
    double scale = ah_bits_double((uint64_t)(ah_exp_parts_f64(c, &r, &p) + 1023) << 52);
    double result = fma(scale, fma(r * r, p, r), scale - 1.0);
    result = x > 709.0 ? ah_exp(x) : result;
    return x == 0.0 ? x : result;
}

/* The logarithm to some base: `two` and `e_scale` are the logarithms of 2 and e to that base. */
static inline float ah_log_to(float x, float two, float e_scale)
{
    int tiny = x < 0x1p-126f;
    float a = tiny ? x * 0x1p23f : x;
    uint32_t e = (ah_float_bits(a) - 0x3f2aaaabu) & 0xff800000u;
    float f = ah_bits_float(ah_float_bits(a) - e) - 1.0f; /* -1/3 .. 1/3 */
    float i = fmaf((float)(int32_t)e, 0x1p-23f, tiny ? -23.0f : 0.0f);
    float s = f * f;
    float r = -0.130310059f, t = 0.140869141f;
    r = fmaf(r, s, -0.121483512f);
    t = fmaf(t, s, 0.139814854f);
    r = fmaf(r, s, -0.166846126f);
    t = fmaf(t, s, 0.200120345f);
    r = fmaf(r, s, -0.249996200f);
    r = fmaf(t, f, r);
    r = fmaf(r, f, 0.333331972f);
    r = fmaf(r, f, -0.5f);
    r = fmaf(r, s, f);
    r = fmaf(i, two, r * e_scale);
    r = a <= 3.40282346e+38f ? r : a + a; /* infinity and NaN */
    r = x < 0.0f ? __builtin_nanf("") : r;
    return x == 0.0f ? -__builtin_inff() : r;
}

static inline float ah_logf(float x)
{
    return ah_log_to(x, 0x1.62e430p-1f, 1.0f);
}

static inline float ah_log2f(float x)
{
    return ah_log_to(x, 1.0f, 1.44269504088896340736f);
}

/* x = 2^k (1 + f) with 1 + f in 0.7..1.4; returns f. */
static inline double ah_log_fraction(double x, double *k)
{
    int tiny = x < 0x1p-1022;
    uint64_t bits = ah_double_bits(tiny ? x * 0x1p54 : x);
    uint64_t biased = (bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;
    *k = ah_bits_double(biased | 0x4330000000000000u) - (tiny ? 0x1p52 + 1023 + 54 : 0x1p52 + 1023);
    return ah_bits_double(bits - ((biased - 1023) << 52)) - 1;
}

/* Of 2 atanh s = 2 s + s p(s^2), p: the series to the 21st power. */
static inline double ah_log_series(double z)
{
    return z * AH_HORNER(fma, z, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5,
                         2.0 / 3);
}

/* A logarithm of x, or that of 0, infinity, NaN and numbers below 0. */
static inline double ah_log_ends(double x, double logarithm)
{
    double r = x <= 0x1.fffffffffffffp1023 ? logarithm : x + x;
    r = x < 0 ? __builtin_nan("") : r;
    return x == 0 ? -__builtin_inf() : r;
}

/* The natural logarithm in double, as 2 atanh(f / (2 + f)): log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + p)). */
static inline double ah_log(double x)
{
    double k, f = ah_log_fraction(x, &k), s = f / (2 + f), half = 0.5 * f * f;
    double r = fma(k, 0x1.ef35793c76730p-45, s * (half + ah_log_series(s * s)));
    return ah_log_ends(x, fma(k, 0x1.62e42fefa3800p-1, f - (half - r)));
}

/* log(1 + x): the rounding of 1 + x is undone by the quotient. */
static inline double ah_log1p(double x)
{
    double w = 1.0 + x, logarithm = ah_log(w), corrected = logarithm * (x / (w - 1.0));
    corrected = w > 0x1p1000 ? logarithm : corrected;
    return w == 1.0 ? x : corrected;
}

static inline float ah_log1pf(float x)
{
    float w = 1.0f + x;
    float corrected = ah_logf(w) * (x / (w - 1.0f));
    corrected = w > 3.0e38f ? ah_logf(w) : corrected;
    return w == 1.0f ? x : corrected;
}

/* log(1 + x) for 0 <= x <= 1, as 2 atanh s of s = x / (2 + x), which is at most 1/3. */
static inline float ah_log1p_unitf(float x)
{
    float s = x / (2.0f + x), z = s * s;
    float p = AH_HORNER(fmaf, z, 0.243016693f, 0.214271862f, 0.286169658f, 0.399988726f, 0.666666757f);
    return fmaf(p * z, s, s + s);
}

/* log(1 + e^x) without a large intermediate value. */
static inline float ah_softplusf(float x)
{
    return (x > 0 ? x : 0) + ah_log1p_unitf(ah_expf(-fabsf(x)));
}

/* e^x for -87 <= x <= 88, where neither the scale nor the result leaves the normal numbers. */
static inline float ah_exp_middle(float x)
{
    float r, p;
    uint32_t power = ah_exp_parts(x, &r, &p);
    p = fmaf(r * r, p, r) + 1.0f;
    return ah_bits_float(ah_float_bits(p) + (power << 23));
}

static inline float ah_tanhf(float x)
{
    float z = x * x, m = fabsf(x), c = m < 10.0f ? m : 10.0f; /* where it is 1 */
    float p = AH_HORNER(fmaf, z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                        -3.33332819422e-1f);
    float small = fmaf(p * z, m, m);
    float large = 1.0f - 2.0f / (ah_exp_middle(c + c) + 1.0f);
    return copysignf(m < 0.625f || x != x ? small : large, x);
}

/* The same in double; the quotient for small x is Cephes'. */
static inline double ah_tanh(double x)
{
    double z = x * x, m = fabs(x), c = m < 22.0 ? m : 22.0;
    double p = AH_HORNER(fma, z, -9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3);
    double q = AH_HORNER(fma, z, 1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3);
    double small = fma(p / q * z, m, m), large = 1.0 - 2.0 / (ah_exp(c + c) + 1.0);
    return copysign(((m < 0.625) | (x != x)) ? small : large, x);
}

/* The bits of 1 / (1 + ah_expf(-x)): half of e^-x has an exponent of one factor wherever it counts next to 1. */
static inline float ah_sigmoidf(float x)
{
    float c = -x > 89.0f ? 89.0f : -x;
    c = c < -87.0f ? -87.0f : c;
    float r, p;
    uint32_t power = ah_exp_parts(c, &r, &p);
    p = fmaf(r * r, p, r) + 1.0f;
    return 1.0f / fmaf(p * ah_bits_float((power + 126) << 23), 2.0f, 1.0f);
}

static inline double ah_sigmoid(double x)
{
    return 1.0 / (1.0 + ah_exp(-x));
}

static inline float ah_erff(float x)
{
    float m = fabsf(x), t = m > 4.0f ? 4.0f : m, s = t * t; /* from 4 on it is 1 */
    float r = fmaf(-1.72853470e-5f, t, 3.83197126e-4f);
    float u = fmaf(-3.88396438e-3f, t, 2.42546219e-2f);
    r = fmaf(r, s, u);
    r = AH_HORNER(fmaf, t, r, -1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f, -t);
    float large = copysignf(1.0f - ah_exp_middle(r), x);
    float p = AH_HORNER(fmaf, s, -5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f, -3.76125336e-1f,
                        1.28379166e-1f);
    float small = fmaf(p, x, x);
    return t > 0.927734375f ? large : small;
}

/* Sine (shift 0) or cosine (shift 1) for |x| up to AH_TRIG_LIMIT: beyond it the three-part pi/2 loses digits. */
#define AH_TRIG_LIMIT 20000.0f

static inline float ah_trigf(float x, uint32_t shift)
{
    float shifted = fmaf(x, 0.63661977236758134308f, 0x1.8p23f);
    float n = shifted - 0x1.8p23f;
    uint32_t quadrant = ah_float_bits(shifted) + shift;
    float r = fmaf(n, -0x1.921fb6p0f, x);
    r = fmaf(n, 0x1.777a5cp-25f, r);
    r = fmaf(n, 0x1.ee59dap-50f, r);
    float z = r * r;
    float s = fmaf(fmaf(fmaf(2.86567956e-6f, z, -1.98559923e-4f), z, 8.33338592e-3f), z, -1.66666672e-1f);
    s = fmaf(s * z, r, r);
    float c = fmaf(fmaf(fmaf(2.44677067e-5f, z, -1.38877297e-3f), z, 4.16666567e-2f), z, -0.5f);
    c = fmaf(c, z, 1.0f);
    float value = quadrant & 1 ? c : s;
    return ah_bits_float(ah_float_bits(value) ^ (quadrant & 2) << 30);
}
