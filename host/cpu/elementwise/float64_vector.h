/* Functions of float64 that the compiler turns into vector code: no branches, no calls, no tables, about a unit or two
 * in the last place. They behave like libm's at infinities, zeros, subnormals and NaN. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/elementwise/elementwise_math.h"

/* pi/2 in three parts. */
#define AH_HALF_PI_1 0x1.921fb54442d18p0
#define AH_HALF_PI_2 0x1.1a62633145c07p-54
#define AH_HALF_PI_3 (-0x1.f1976b7ed8fbcp-110)

/* For |x| up to AH_TRIG_LIMIT_F64: x less a multiple of pi/2, in two parts, and the bits of that multiple; then the
 * sine and cosine of such a rest by the polynomials of fdlibm. */
#define AH_TRIG_LIMIT_F64 1e6

static inline uint64_t ah_trig_rest(double x, double *rest, double *low)
{
    double shifted = fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52), n = shifted - 0x1.8p52;
    double high = fma(n, -AH_HALF_PI_1, x), part = n * -AH_HALF_PI_2, sum = high + part, back = sum - high;
    *low = (high - (sum - back)) + (part - back) + fma(n, -AH_HALF_PI_2, -part) - n * AH_HALF_PI_3;
    *rest = sum;
    return ah_double_bits(shifted);
}

static inline double ah_rest_sin(double r, double low)
{
    double z = r * r;
    double p = AH_HORNER(fma, z, 1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                         -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01);
    return r + fma(p * z, r, fma(-0.5 * z, low, low));
}

static inline double ah_rest_cos(double r, double low)
{
    double z = r * r;
    double p = AH_HORNER(fma, z, -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
                         2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02, -0.5);
    return 1 + fma(p, z, -r * low);
}

/* Sine (shift 0) or cosine (shift 1). */
static inline double ah_trig(double x, uint64_t shift)
{
    double r, low;
    uint64_t quadrant = ah_trig_rest(x, &r, &low) + shift;
    double value = quadrant & 1 ? ah_rest_cos(r, low) : ah_rest_sin(r, low);
    value = ah_bits_double(ah_double_bits(value) ^ (quadrant & 2) << 62);
    return x == 0 && shift == 0 ? x : value;
}

static inline double ah_tan(double x)
{
    double r, low;
    uint64_t odd = ah_trig_rest(x, &r, &low) & 1;
    double s = ah_rest_sin(r, low), c = ah_rest_cos(r, low);
    double value = (odd ? -c : s) / (odd ? s : c);
    return x == 0 ? x : value;
}

/* atan(over / under) less pi/4 or 0, whichever *turn gets, for 0 <= over <= under: the quotient of Cephes. */
static inline double ah_atan_octant(double over, double under, double *turn)
{
    bool far = over > 0.66 * under;
    double x = (far ? over - under : over) / (far ? over + under : under), z = x * x;
    double p = AH_HORNER(fma, z, -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
                         -1.228866684490136173410e2, -6.485021904942025371773e1);
    double q = AH_HORNER(fma, z, 1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
                         4.853903996359136964868e2, 1.945506571482613964425e2);
    *turn = far ? 0.5 * AH_HALF_PI_1 : 0;
    return fma(z * (p / q), x, x) + (far ? 0.5 * AH_HALF_PI_2 : 0);
}

static inline double ah_atan(double x)
{
    double size = fabs(x), turn;
    bool steep = size > 1;
    double a = ah_atan_octant(steep ? 1 / size : size, 1, &turn);
    double value = steep ? (AH_HALF_PI_1 - turn) - (a - AH_HALF_PI_2) : turn + a;
    return x != x ? x : copysign(value, x);
}

static inline double ah_atan2(double y, double x)
{
    double over = fabs(y), under = fabs(x), turn;
    bool steep = over > under, endless = over > 0x1.fffffffffffffp1023 && under > 0x1.fffffffffffffp1023;
    double small = steep ? under : over, large = steep ? over : under, scale = large > 0x1p1000 ? 0x1p-100 : 1;
    small = endless ? 1 : large > 0x1.fffffffffffffp1023 ? 0 : small * scale;
    large = endless || large > 0x1.fffffffffffffp1023 || large == 0 ? 1 : large * scale;
    double a = ah_atan_octant(small, large, &turn), high = turn;
    a = steep ? AH_HALF_PI_2 - a : a;
    high = steep ? AH_HALF_PI_1 - turn : turn;
    bool left = ah_double_bits(x) >> 63;
    a = left ? 2 * AH_HALF_PI_2 - a : a;
    high = left ? 2 * AH_HALF_PI_1 - high : high;
    return x != x || y != y ? x + y : copysign(high + a, y);
}

/* (asin s - s) / s for s^2 = z up to 1/4, fdlibm's quotient. */
static inline double ah_asin_quotient(double z)
{
    double p = AH_HORNER(fma, z, 3.47933107596021167570e-05, 7.91534994289814532176e-04, -4.00555345006794114027e-02,
                         2.01212532134862925881e-01, -3.25565818622400915405e-01, 1.66666666666666657415e-01);
    double q = AH_HORNER(fma, z, 7.70381505559019352791e-02, -6.88283971605453293030e-01, 2.02094576023350569471e+00,
                         -2.40339491173441421878e+00, 1.0);
    return p * z / q;
}

/* Above 1/2 by asin x = pi/2 - 2 asin(sqrt((1 - x) / 2)), as in float32 (cpu/elementwise/angle_vector.h). */
static inline double ah_asin(double x)
{
    double size = fabs(x), rest = 0.5 * (1 - size), z = size > 0.5 ? rest : x * x;
    double s = size > 0.5 ? sqrt(rest > 0 ? rest : 0) : size, tail = ah_asin_quotient(z) * s;
    double lost = fma(-s, s, z) * fma(-2.6, s, 2.35), high = AH_HALF_PI_1 - 2 * s;
    double far = high + (((AH_HALF_PI_1 - high) - 2 * s) - (2 * (tail + lost) - AH_HALF_PI_2));
    double value = copysign(size > 0.5 ? far : s + tail, x);
    return size <= 1 ? value : __builtin_nan("");
}

static inline double ah_acos(double x)
{
    double size = fabs(x), rest = 0.5 * (1 - size), z = size > 0.5 ? rest : x * x;
    double s = size > 0.5 ? sqrt(rest > 0 ? rest : 0) : x, a = fma(ah_asin_quotient(z), s, s);
    double near = x > 0 ? 2 * a : 2 * AH_HALF_PI_1 - (2 * a - 2 * AH_HALF_PI_2);
    double value = size > 0.5 ? near : AH_HALF_PI_1 - (a - AH_HALF_PI_2);
    return size <= 1 ? value : __builtin_nan("");
}

/* 2^x: the whole part of x is the exponent. */
static inline double ah_exp2(double x)
{
    double c = x > 1030 ? 1030 : x, p, r;
    c = c < -1080 ? -1080 : c;
    double shifted = c + 0x1.8p52;
    r = (c - (shifted - 0x1.8p52)) * 0x1.62e42fefa39efp-1;
    p = AH_HORNER(fma, r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                  1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
    p = fma(r * r, p, r) + 1.0;
    int64_t k = (int64_t)(ah_double_bits(shifted) - 0x4338000000000000u), half = k >> 1;
    return p * ah_bits_double((uint64_t)(half + 1023) << 52) * ah_bits_double((uint64_t)(k - half + 1023) << 52);
}

/* The logarithm to a base, whose 1 / log and log 2 come in two parts: log 2 in few bits first, so that whole powers
 * have whole logarithms. */
static inline double ah_log_base(double x, double scale, double scale_low, double two, double two_low)
{
    double k, f = ah_log_fraction(x, &k), s = f / (2 + f), half = 0.5 * f * f;
    double high = f - half, low = ((f - high) - half) + s * (half + ah_log_series(s * s));
    double whole = k * two, main = high * scale;
    double rest = fma(high, scale, -main) + fma(low, scale, fma(high + low, scale_low, k * two_low));
    double sum = whole + main;
    rest += fabs(whole) > fabs(main) ? (whole - sum) + main : (main - sum) + whole;
    return ah_log_ends(x, sum + rest);
}

static inline double ah_log2(double x)
{
    return ah_log_base(x, 0x1.71547652b82fep0, 0x1.777d0ffda0d24p-56, 1, 0);
}

static inline double ah_log10(double x)
{
    return ah_log_base(x, 0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57, 0x1.34413509f6000p-2, 0x1.9fef311f12b36p-42);
}

/* erf x for |x| <= 1; and exp(x^2) erfc(x) up to 28, a polynomial in (x - 3) / (x + 3): both by Chebyshev
 * interpolation. */
static inline __attribute__((always_inline)) double ah_erf_small(double x)
{
    double t = fma(2 * x, x, -1.0), p;
    p = AH_HORNER(fma, t, -3.80659122412214e-13, 9.21125018742823e-12, -2.035231956483527e-10, 4.115751500265885e-09,
        -7.51156925108609e-08, 1.2233827638093572e-06, -1.75371694412802e-05, 0.00021751715603563488,
        -0.0022854855611440855, 0.019852496688984218, -0.1405360890227171, 0.9654687386698673);
    return p * x;
}

static inline __attribute__((always_inline)) double ah_erfc_scaled(double x)
{
    double t = (17 * x - 42) / (14 * (x + 3)), p;
    p = AH_HORNER(fma, t, -1.0270363164509319e-10, -4.360037387809503e-10, 6.469900733345448e-10,
        5.296171258781283e-09, 1.017354058493412e-09);
    p = AH_HORNER(fma, t, p, -3.7279856592918425e-08, -4.519972975293972e-08, 2.138490759567398e-07,
        4.926626851684188e-07, -1.210597629978675e-06, -4.2585894640607535e-06, 8.333744917369979e-06,
        3.437272143988358e-05, -8.319305621515987e-05, -0.0002464001737622734, 0.001109765401262193,
        0.0004017857091370018, -0.013537266347801962, 0.04959685432112634, -0.10364921848473622, 0.13458910257130866,
        -0.075507225083199, -0.11047304960427458, 1.2655586889741228);
    return p / (1 + 2 * x);
}

static inline __attribute__((always_inline)) double ah_erf(double x)
{
    double m = fabs(x), c = m < 6 ? m : 6, small = ah_erf_small(m < 1 ? m : 0); /* from 6 on it is 1 */
    double large = 1 - ah_exp(-c * c) * ah_erfc_scaled(c), value = m < 1 ? small : large;
    return x != x ? x : copysign(value, x);
}

static inline double ah_erfc(double x)
{
    double m = fabs(x), c = m < 28 ? m : 28, square = c * c, lost = fma(c, c, -square);
    double e = ah_exp(-square), value = fma(e, -lost, e) * ah_erfc_scaled(c);
    value = m < 0.5 ? 1 - ah_erf_small(m < 1 ? x : 0) : x < 0 ? 2 - value : value;
    return x != x ? x : value;
}

/* The inverse of erf over its argument: Chebyshev interpolation in w = -log(1 - x^2) and, above 6.25, its root. */
static inline double ah_erfinv(double x)
{
    double w = -ah_log((1 - x) * (1 + x)), s = sqrt(w > 6.25 ? w : 6.25), a, b, c;
    double t = fma(w, 1 / 3.125, -1.0), u = fma(s, 4.0 / 3, -13.0 / 3), v = (s - 5.05) * (1 / 1.05);
    a = AH_HORNER(fma, t, -1.8199034168726056e-11, -4.138396507936207e-09, 8.699377880241274e-09,
        2.8085454480599277e-08);
    a = AH_HORNER(fma, t, a, -1.0426210588989032e-07, 5.601549819901144e-09, 5.444465821755199e-07,
        -1.0734591410364882e-06, -6.866552594632471e-07, 7.1383125443102916e-06, -1.125619146677325e-05,
        -1.5030870369108395e-05, 9.336711350835166e-05, -0.0001168880630842072, -0.00026439362645934515,
        0.0012324854519911068, -0.001271692271958298, -0.00413731436767485, 0.017808361818432112,
        -0.022604447453825078, -0.058922567103779404, 0.7504943200799679, 1.6536545626831027);
    b = AH_HORNER(fma, u, -2.159829264980955e-12, 6.819336997989723e-10, -2.6921670135260728e-09,
        2.448720579642754e-10, 2.6652555523279727e-08, -9.536038433614285e-08, 9.272847268010501e-08,
        5.268978286875368e-07, -2.6647290027131336e-06, 5.1271458282959595e-06, 2.405849826863639e-06,
        -4.739178791780613e-05, 0.00016966502384997928, -0.0004006357032703787, 0.0007883078512000405,
        -0.0015825410891285008, 0.0030211394363764865, 0.7539442257706194, 3.0838856104922208);
    c = AH_HORNER(fma, v, 1.1308535800944148e-11, -5.233957122613893e-10, 2.3514054740846664e-09,
        -5.4511616354438874e-09, 1.0170785118273821e-08, -1.871544162968638e-08, 3.568053169124916e-08,
        -8.54561090262358e-08, 2.9784272752046645e-07, -1.2762899251092935e-06, 5.6201715530804584e-06,
        -2.345109295047576e-05, 8.659304819060866e-05, -0.00023188618593541786, -0.00018726854586198106,
        1.0607992684776442, 4.90042105144364);
    double value = (w < 6.25 ? a : s < 4 ? b : c) * x;
    value = fabs(x) == 1 ? x * __builtin_inf() : value;
    return fabs(x) <= 1 ? value : __builtin_nan("");
}

/* The second derivative of log gamma: the recurrence as one fraction up to 10, then Abramowitz and Stegun 6.4.12, and
 * below 1/2 6.4.7. */
static inline double ah_trigamma(double x)
{
    double y = x < 0.5 ? 1 - x : x, over = 0, under = 1;
#pragma GCC unroll 10
    for (int k = 0; k < 10; k++) {
        double low = y < 10 ? y * y : 1;
        over = y < 10 ? fma(over, low, under) : over;
        under *= low;
        y += y < 10 ? 1 : 0;
    }
    double r = 1 / y, z = r * r;
    double p = AH_HORNER(fma, z, 43867.0 / 798, -3617.0 / 510, 7.0 / 6, -691.0 / 2730, 5.0 / 66, -1.0 / 30, 1.0 / 42,
                         -1.0 / 30, 1.0 / 6);
    double positive = fma(p * r, z, fma(0.5 * r, r, r)) + over / under, sine = ah_trig((x - rint(x)) * M_PI, 0);
    return x != x ? x : x < 0.5 ? M_PI * M_PI / (sine * sine) - positive : positive;
}

/* The derivative of log gamma: the recurrence up to 10, Abramowitz and Stegun 6.3.18, and below 0
 * psi(1 - x) - pi / tan(pi x). */
static inline double ah_digamma(double x)
{
    double y = x < 0 ? 1 - x : x, over = 0, under = 1;
#pragma GCC unroll 10
    for (int k = 0; k < 10; k++) {
        double low = y < 10 ? y : 1;
        over = y < 10 ? fma(over, low, under) : over;
        under *= low;
        y += y < 10 ? 1 : 0;
    }
    double r = 1 / y, z = r * r;
    double p = AH_HORNER(fma, z, -43867.0 / 14364, 3617.0 / 8160, -1.0 / 12, 691.0 / 32760, -1.0 / 132, 1.0 / 240,
                         -1.0 / 252, 1.0 / 120, -1.0 / 12);
    double d = (x - rint(x)) * M_PI, sine = ah_trig(d, 0);
    double turned = x < 0 ? M_PI * ah_trig(d, 1) / (sine != 0 ? sine : 1) : 0;
    double value = fma(p, z, ah_log(y) - 0.5 * r) - over / under - turned;
    value = x < 0 && sine == 0 ? __builtin_nan("") : value;
    value = x == 0 ? copysign(__builtin_inf(), -x) : value;
    value = x > 0x1.fffffffffffffp1023 ? x : value;
    return x != x ? x : value;
}

/* log x of a finite positive number, to twice double's digits: 2 atanh(f / (2 + f)), its terms of s and s^3 in two
 * parts. */
static inline double ah_log_twofold(double x, double *low)
{
    const double third = 0x1.5555555555555p-1, third_low = 0x1.5555555555555p-55; /* two thirds */
    double k, f = ah_log_fraction(x, &k), under = 2 + f, under_low = f - (under - 2), inverse = 1 / under;
    double s = f * inverse, s_low = (fma(-s, under, f) - s * under_low) * inverse;
    double z = s * s, z_low = fma(s, s, -z) + 2 * s * s_low;
    double tail = z * AH_HORNER(fma, z, 2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,
                                2.0 / 7, 2.0 / 5);
    double p = third + tail, p_low = (third - p) + tail + third_low;
    double u = s * z, u_low = fma(s, z, -u) + fma(s, z_low, s_low * z);
    double v = u * p, v_low = fma(u, p, -v) + fma(u, p_low, u_low * p);
    double h = 2 * s + v, h_low = (2 * s - h) + v + fma(2, s_low, v_low);
    double whole = k * 0x1.62e42fefa3800p-1, sum = whole + h;
    *low = (whole - sum) + h + fma(k, 0x1.ef35793c76730p-45, h_low);
    return sum;
}

/* |x|^y is exp(y log |x|); negative x have powers of whole numbers, which keep the sign of odd ones. */
static inline __attribute__((always_inline)) double ah_pow(double x, double y)
{
    const double infinity = __builtin_inf(), nan = __builtin_nan("");
    double size = fabs(x), whole = rint(y), half = whole * 0.5, low, r, p;
    int plain = (size > 0) & (size < infinity), is_whole = whole == y, odd = is_whole & (rint(half) != half);
    double high = ah_log_twofold(plain ? size : 1.0, &low), e = y * high, e_low = fma(y, high, -e) + y * low;
    e_low = fabs(e) < 800 ? e_low : 0;
    double c = e > 711 ? 711 : e < -746 ? -746 : e;
    int64_t n = ah_exp_parts_f64(c, &r, &p), part = n >> 1;
    double q = fma(r * r, p, r);
    q += fma(e_low, q, e_low);
    double value = (q + 1) * ah_bits_double((uint64_t)(part + 1023) << 52);
    value *= ah_bits_double((uint64_t)(n - part + 1023) << 52);
    double end = (size > 0) == (y > 0) ? infinity : 0;
    value = size > 0 ? value : end;
    value = size < infinity ? value : end;
    value = size == 1 ? 1 : value; /* also to the power of infinity */
    uint64_t negative = ah_double_bits(x) >> 63;
    value = ah_bits_double(ah_double_bits(value) | (negative & (uint64_t)odd) << 63);
    value = ((x < 0) & (x > -infinity) & !is_whole) ? nan : value;
    value = ((x != x) | (y != y)) ? nan : value;
    return ((x == 1) | (y == 0)) ? 1 : value;
}

static inline double ah_hypot(double a, double b)
{
    double x = fabs(a), y = fabs(b), large = x > y ? x : y;
    double scale = large > 0x1p500 ? 0x1p-600 : large < 0x1p-500 ? 0x1p600 : 1;
    double back = large > 0x1p500 ? 0x1p600 : large < 0x1p-500 ? 0x1p-600 : 1;
    double u = a * scale, v = b * scale, value = sqrt(fma(u, u, v * v)) * back;
    return x > 0x1.fffffffffffffp1023 || y > 0x1.fffffffffffffp1023 ? __builtin_inf() : value;
}

/* The remainder of a / b rounded towards zero, exact where the quotient is below 2^51 (or NaN): the quotient rounded to
 * a whole number is at most one too large. */
static inline bool ah_fmod_is_short_f64(double a, double b)
{
    return !(fabs(a) > 0x1p51 * fabs(b)) || fabs(a) > 0x1.fffffffffffffp1023;
}

static inline double ah_short_fmod(double a, double b)
{
    double x = fabs(a), y = fabs(b), rest = fma(-trunc(x / y), y, x);
    double value = copysign(rest < 0 ? rest + y : rest, a);
    return y > 0x1.fffffffffffffp1023 && x <= 0x1.fffffffffffffp1023 ? a : value;
}

static inline double ah_fmod(double a, double b)
{
    return ah_fmod_is_short_f64(a, b) ? ah_short_fmod(a, b) : fmod(a, b);
}

/* The next number from a on the way to b: integers in the order of the floats are one apart. */
static inline double ah_nextafter(double a, double b)
{
    uint64_t bits = ah_double_bits(a), up = (a < b) == (a > 0) ? bits + 1 : bits - 1;
    double value = a == 0 ? copysign(0x1p-1074, b) : ah_bits_double(up);
    value = a == b ? b : value;
    return a != a || b != b ? a + b : value;
}
