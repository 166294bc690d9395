/* Special functions of float32 that the compiler turns into vector code: no branches, no calls. Where cancellation
 * would cost float its digits the work is done in double; results are good to a unit or two of float's last place. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "cpu/elementwise/elementwise_math.h"

/* x = 2^k (1 + f) of a positive normal number, 1 + f in 0.7..1.4; returns f / (2 + f), the tanh of
 * half the logarithm of 1 + f. */
static inline double ah_vector_log_parts(double x, double *k)
{
    uint64_t bits = ah_double_bits(x), biased = (bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;
    *k = ah_bits_double(biased | 0x4330000000000000u) - (0x1p52 + 1023);
    double f = ah_bits_double(bits - ((biased - 1023) << 52)) - 1;
    return f / (2 + f);
}

/* log x of a positive normal number, as 2 atanh of that quotient (the series to the 21st power). */
static inline double ah_vector_log(double x)
{
    double k, s = ah_vector_log_parts(x, &k), z = s * s, w = z * z;
    double p = AH_HORNER(fma, w, 2.0 / 21, 2.0 / 17, 2.0 / 13, 2.0 / 9, 2.0 / 5, 2.0);
    double odd = AH_HORNER(fma, w, 2.0 / 19, 2.0 / 15, 2.0 / 11, 2.0 / 7, 2.0 / 3);
    return fma(k, 0x1.62e42fefa39efp-1, fma(odd, z, p) * s);
}

/* e^x for |x| <= 700, by the exponential series to the 12th power. */
static inline double ah_vector_exp(double x)
{
    double shifted = fma(x, 0x1.71547652b82fep0, 0x1.8p52), n = shifted - 0x1.8p52;
    double r = fma(n, -0x1.62e42fefa39efp-1, x), z = r * r;
    double p = AH_HORNER(fma, z, 1.0 / 479001600, 1.0 / 3628800, 1.0 / 40320, 1.0 / 720, 1.0 / 24, 0.5, 1.0);
    double odd = AH_HORNER(fma, z, 1.0 / 39916800, 1.0 / 362880, 1.0 / 5040, 1.0 / 120, 1.0 / 6, 1.0);
    return fma(odd, r, p) * ah_bits_double((ah_double_bits(shifted) + 1023) << 52);
}

/* The same to the 8th power: to the digits that float has, and three more. */
static inline double ah_vector_exp_short(double x)
{
    double shifted = fma(x, 0x1.71547652b82fep0, 0x1.8p52), n = shifted - 0x1.8p52;
    double r = fma(n, -0x1.62e42fefa39efp-1, x), z = r * r;
    double p = AH_HORNER(fma, z, 1.0 / 40320, 1.0 / 720, 1.0 / 24, 0.5, 1.0);
    double odd = AH_HORNER(fma, z, 1.0 / 5040, 1.0 / 120, 1.0 / 6, 1.0);
    return fma(odd, r, p) * ah_bits_double((ah_double_bits(shifted) + 1023) << 52);
}

/* sin and cos for |a| <= pi / 2, by their series. */
static inline double ah_vector_sin(double a)
{
    double z = a * a, p = 1.0 / 355687428096000;
    p = AH_HORNER(fma, z, p, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                  1.0 / 120, -1.0 / 6);
    return fma(p * z, a, a);
}

static inline double ah_vector_cos(double a)
{
    double z = a * a, p = 1.0 / 6402373705728000;
    p = fma(-p, z, 1.0 / 20922789888000);
    p = AH_HORNER(fma, z, p, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24,
                  -0.5);
    return fma(p, z, 1.0);
}

/* log |gamma(x)| for x > 0: the recurrence up to 8, then Stirling's series (Abramowitz and Stegun 6.1.41). */
static inline double ah_vector_lgamma_positive(double x)
{
    double product = 1, y = x;
    for (int k = 0; k < 8; k++) {
        double low = y < 8 ? y : 1;
        product *= low;
        y += y < 8 ? 1 : 0;
    }
    double r = 1 / y, z = r * r, p = -3617.0 / 122400;
    p = AH_HORNER(fma, z, p, 1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12);
    double stirling = fma(y - 0.5, ah_vector_log(y), 0.91893853320467274178 - y) + p * r;
    return stirling - ah_vector_log(product);
}

/* Any x: below 1/2 log(pi / |sin pi x|) - log gamma(1 - x). */
static inline float ah_lgammaf(float a)
{
    double x = (double)a, mirrored = x < 0.5 ? 1 - x : x, positive = ah_vector_lgamma_positive(mirrored);
    double sine = fabs(ah_vector_sin(M_PI * (x - rint(x))));
    double value = x < 0.5 ? ah_vector_log(M_PI / (sine > 0 ? sine : 1)) - positive : positive;
    value = x <= 0 && x == rint(x) ? __builtin_inf() : value;
    value = fabsf(a) > 3.4e38f ? __builtin_inf() : value;
    value = x == 1 || x == 2 ? 0 : value;
    return a != a ? a : (float)value;
}

/* The derivative of log gamma: the recurrence as one fraction, the series of Abramowitz and Stegun 6.3.18, and below 0
 * psi(1 - x) - pi / tan(pi x). */
static inline float ah_digammaf(float a)
{
    double x = (double)a, y = x < 0 ? 1 - x : x, over = 0, under = 1;
    for (int k = 0; k < 8; k++) {
        double low = y < 8 ? y : 1;
        over = y < 8 ? fma(over, low, under) : over;
        under *= low;
        y += y < 8 ? 1 : 0;
    }
    double r = 1 / y, z = r * r, p = 691.0 / 32760;
    p = AH_HORNER(fma, z, p, -1.0 / 132, 1.0 / 240, -1.0 / 252, 1.0 / 120, -1.0 / 12);
    double d = x - rint(x), sine = ah_vector_sin(M_PI * d);
    double turned = x < 0 ? M_PI * ah_vector_cos(M_PI * d) / (sine != 0 ? sine : 1) : 0;
    double value = fma(p, z, ah_vector_log(y) - 0.5 * r) - over / under - turned;
    value = x < 0 && d == 0 ? __builtin_nan("") : value;
    value = x == 0 ? copysign(__builtin_inf(), -x) : value;
    value = a > 3.4028234e38f ? (double)a : value;
    return a != a ? a : (float)value;
}

/* The inverse of erf by M. Giles, "Approximating the erfinv function", GPU Computing Gems 2 (2011). */
static inline float ah_erfinvf(float x)
{
    float w = -ah_logf((1 - x) * (1 + x)), c = w - 2.5f, t = sqrtf(w > 5 ? w : 5) - 3;
    float p = 2.81022636e-08f, q = -0.000200214257f;
    p = AH_HORNER(fmaf, c, p, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f, -0.00125372503f,
                  -0.00417768164f, 0.246640727f, 1.50140941f);
    q = AH_HORNER(fmaf, t, q, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f, -0.0076224613f,
                  0.00943887047f, 1.00167406f, 2.83297682f);
    float value = (w < 5 ? p : q) * x;
    value = fabsf(x) == 1 ? x * __builtin_inff() : value;
    return fabsf(x) <= 1 ? value : __builtin_nanf("");
}

/* 1 - erf x: (1 + 2 x) exp(x^2) erfc(x) by Chebyshev interpolation in (x - 3) / (x + 3), relative error 2e-09. */
static inline float ah_erfcf(float x)
{
    double size = fabs((double)x), c = size < 11 ? size : 11, q = (c - 3) / (c + 3), z = q * q;
    double p = AH_HORNER(fma, z, 3.891751635202682e-06, -0.00010422117746137031, 0.0018882157013599839,
                         -0.023770388711756931, -0.11927367843139065, -0.047562293827730473, 1.2530080582697303);
    double odd = AH_HORNER(fma, z, 7.7204139426609894e-05, -0.00072616080124547015, 0.0024988226114179761,
                           0.068316697294379058, 0.12964409102496741, -0.13562106822069575);
    double value = fma(odd, q, p) * ah_vector_exp_short(-c * c) / (1 + 2 * c);
    value = x < 0 ? 2 - value : value;
    return x != x ? x : (float)value;
}

/* The second derivative of log gamma, as ah_digammaf (Abramowitz and Stegun 6.4.12, 6.4.7). */
static inline float ah_trigammaf(float a)
{
    double x = (double)a, y = x < 0.5 ? 1 - x : x, over = 0, under = 1;
    for (int k = 0; k < 8; k++) {
        double low = y < 8 ? y * y : 1;
        over = y < 8 ? fma(over, low, under) : over;
        under *= low;
        y += y < 8 ? 1 : 0;
    }
    double r = 1 / y, z = r * r, p = 5.0 / 66;
    p = AH_HORNER(fma, z, p, -1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6);
    double positive = fma(p * r, z, fma(0.5 * r, r, r)) + over / under, d = x - rint(x), sine = ah_vector_sin(M_PI * d);
    double value = x < 0.5 ? M_PI * M_PI / (sine * sine) - positive : positive;
    return a != a ? a : (float)value;
}

/* exp(-|x|) times the modified Bessel functions of order 0 and, over x, order 1: Chebyshev interpolation, up to 8 in
 * x / 4 - 1, beyond in 16 / x - 1 after division by sqrt(x); relative errors 3e-9 and 2e-10. */
static inline double ah_vector_i0e(double size)
{
    double t = (size < 8 ? size : 8) * 0.25 - 1, far = size < 8 ? 8 : size < 1e30 ? size : 1e30, v = 16 / far - 1;
    double p = 0.00033594618054720284, q = 3.2134367930923291e-09;
    p = AH_HORNER(fma, t, p, -0.0008508527112886812, 0.00046962468290103778, -0.00075969667420693987,
                  0.0040626540068795566, -0.0080098496946020004, 0.011661633697071658, -0.018865125913711225,
                  0.030297408748948568, -0.043313793714546328, 0.056749110769034862, -0.069464514921812479,
                  0.079278744201231544, -0.084973049591332478, 0.087343215324166681, -0.089042889186920521,
                  0.094515631894074165, -0.11300433610864358, 0.2070019212239862);
    q = AH_HORNER(fma, v, q, 3.1734683880398913e-08, 1.0222957496983727e-07, 3.0712517720011826e-07,
                  1.4801668713066518e-06, 1.1139924005198348e-05, 0.00013621634810298289, 0.0033605522271073587,
                  0.40217650944500832);
    return size < 8 ? p : q / sqrt(far);
}

static inline double ah_vector_i1e(double size)
{
    double t = (size < 8 ? size : 8) * 0.25 - 1, far = size < 8 ? 8 : size < 1e30 ? size : 1e30, v = 16 / far - 1;
    double p = 4.598307631415247e-05, q = -4.2368985026839571e-09;
    p = AH_HORNER(fma, t, p, -0.0001235527859187693, 0.00010047980903673759, -0.000203178323334536,
                  0.00079946659561516893, -0.0016976304234502177, 0.0029690588031537324, -0.0054283146103291189,
                  0.0095986308904769009, -0.015613829659667519, 0.023682593674103726, -0.033661423884726337,
                  0.044675003643667582, -0.055281290399717201, 0.063767379118518416, -0.068482534789142679,
                  0.068057600320165945, -0.061124339222214497, 0.044687709875608578);
    q = AH_HORNER(fma, v, q, -3.5904637444743579e-08, -1.1423534045848254e-07, -3.5819536634051623e-07,
                  -1.8310212388061097e-06, -1.5035390361737705e-05, -0.00021923605339001901, -0.0097495774411341298,
                  0.38939845902587245);
    return size < 8 ? p * size : q / sqrt(far);
}

static inline float ah_i0f(float x)
{
    double size = fabs((double)x);
    float value = (float)(ah_vector_i0e(size) * ah_vector_exp(size < 700 ? size : 700));
    return x != x ? x : value;
}

static inline float ah_i1f(float x)
{
    double size = fabs((double)x);
    float value = copysignf((float)(ah_vector_i1e(size) * ah_vector_exp(size < 700 ? size : 700)), x);
    return x != x ? x : value;
}

/* 2^x: the whole part of x is the exponent. */
static inline float ah_exp2f(float x)
{
    float c = x > 130.0f ? 130.0f : x;
    c = c < -152.0f ? -152.0f : c;
    float shifted = c + 0x1.8p23f, n = shifted - 0x1.8p23f, r = (c - n) * 0x1.62e430p-1f, p = 0.000198527617612853646f;
    p = AH_HORNER(fmaf, r, p, 0.00139304355252534151f, 0.00833336077630519867f, 0.0416664853692054749f,
                  0.166666671633720398f, 0.5f);
    p = fmaf(r * r, p, r) + 1.0f;
    int32_t k = (int32_t)(ah_float_bits(shifted) - 0x4b400000u), half = k >> 1;
    return p * ah_bits_float((uint32_t)(half + 127) << 23) * ah_bits_float((uint32_t)(k - half + 127) << 23);
}

/* In double, so that logarithms of powers of ten are whole. */
static inline float ah_log10f(float x)
{
    const double e = 0.43429448190325182765;
    double k, s = ah_vector_log_parts((double)x, &k), z = s * s, w = z * z; /* any numbers where x <= 0 */
    double p = AH_HORNER(fma, w, e * 2 / 13, e * 2 / 9, e * 2 / 5, e * 2);
    double odd = AH_HORNER(fma, w, e * 2 / 15, e * 2 / 11, e * 2 / 7, e * 2 / 3);
    float value = (float)fma(k, 0.30102999566398119521, fma(odd, z, p) * s);
    value = x > 3.4028234e38f ? x : value;
    value = x == 0 ? -__builtin_inff() : value;
    return x >= 0 ? value : __builtin_nanf("");
}

/* The same to the digits that bfloat16 has, powers of ten included. */
static inline float ah_log10_short(float x)
{
    return ah_log_to(x, 0.301029995663981195f, 0.434294481903251828f);
}

/* 1 - erf x to the digits that bfloat16 has: 2 to the power of a polynomial for |x|; subnormal results are 0. */
static inline float ah_erfc_short(float x)
{
    float m = fabsf(x), c = m < 9.3f ? m : 9.3f;
    float r = AH_HORNER(fmaf, c, 4.40011803e-07f, -1.9773177e-05f, 0.00038299142f, -0.00422445545f, 0.0297389068f,
                        -0.143826395f, -0.925418675f, -1.6250447f, -0.000179834737f);
    float shifted = r + 0x1.8p23f, f = r - (shifted - 0x1.8p23f);
    float p = AH_HORNER(fmaf, f, 0.05517166f, 0.24261113f, 0.69326097f, 0.99992806f);
    float above = r > -126.0f ? ah_bits_float(ah_float_bits(p) + (ah_float_bits(shifted) << 23)) : 0.0f;
    float value = x < 0.0f ? 2.0f - above : above;
    return x == x ? value : x;
}
