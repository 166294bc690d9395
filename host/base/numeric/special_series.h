/* Functions in double that the C library lacks, for the CPU and for kernels of devices, which define AH_SPECIAL as the
 * storage class of their functions ("static", "static __device__"): gamma functions by recurrence and asymptotic
 * series, erf's inverse by Halley's method, Bessel functions by their two series (Abramowitz and Stegun 6.3, 6.4, 9.6,
 * 9.7, 23.2). Invariant: series end where the next term is below rounding, so every loop ends for every argument. */
#pragma once

#include <math.h>

/* B(2j) / (2j)! for j of 1..9, for sums by Euler and Maclaurin. */
AH_SPECIAL double bernoulli(int j)
{
    static const double numbers[] = {
        1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000.0,
        1.0 / 74724249600.0, -3617.0 / 10670622842880000.0, 43867.0 / 5109094217170944000.0,
    };
    return numbers[j - 1];
}
enum { AH_BERNOULLI_COUNT = 9, AH_SERIES_FAR = 12 };

/* The sum over k >= 0 of (q + k)^-s, for q > 0 and s > 1 (Hurwitz' zeta function). */
AH_SPECIAL double zeta(double s, double q)
{
    double sum = 0;
    if (q == INFINITY)
        return 0;
    for (; q < AH_SERIES_FAR; q++)
        sum += pow(q, -s);
    double power = pow(q, -s);
    sum += power * (q / (s - 1) + 0.5);
    double factor = s * power / q;
    for (int j = 1; j <= AH_BERNOULLI_COUNT; j++) {
        sum += factor * bernoulli(j);
        factor *= (s + 2 * j - 1) * (s + 2 * j) / (q * q);
    }
    return sum;
}

/* The same for any q but 0, -1, ...: the terms below 0 are a difference of two such sums. */
AH_SPECIAL double zeta_anywhere(double s, double q)
{
    if (q > 0)
        return zeta(s, q);
    double below = ceil(-q), rest = q + below; /* rest in [0, 1) */
    if (rest == 0)
        return INFINITY;
    double sign = fmod(s, 2.0) == 0 ? 1 : -1;
    return zeta(s, rest) + sign * (zeta(s, 1 - rest) - zeta(s, below + 1 - rest));
}

AH_SPECIAL double ah_digamma_series(double x)
{
    if (x == 0)
        return copysign(INFINITY, -x);
    if (x < 0 && x == trunc(x))
        return NAN;
    double shift = 0;
    if (x < 0) { /* psi(1 - x) - pi / tan(pi x), the angle reduced first */
        shift = -M_PI / tan(M_PI * (x - round(x)));
        x = 1 - x;
    }
    for (; x < AH_SERIES_FAR; x++)
        shift -= 1 / x;
    /* log x - 1/(2x) - sum of B(2j) / (2j x^2j), the coefficients being bernoulli(j) (2j - 1)! */
    double inverse = 1 / (x * x), power = inverse, factorial = 1, sum = 0;
    for (int j = 1; j <= AH_BERNOULLI_COUNT; j++) {
        sum += bernoulli(j) * factorial * power;
        factorial *= (2 * j) * (2 * j + 1);
        power *= inverse;
    }
    return shift + log(x) - 0.5 / x - sum;
}

AH_SPECIAL double ah_polygamma_series(int order, double x)
{
    if (order == 0)
        return ah_digamma_series(x);
    double sign = order % 2 ? 1 : -1;
    return sign * tgamma((double)(order + 1)) * zeta_anywhere(order + 1, x);
}

AH_SPECIAL double ah_erfinv_series(double y)
{
    double size = fabs(y);
    if (!(size < 1))
        return size == 1 ? copysign(INFINITY, y) : NAN;
    if (size < 1e-8)
        return y * (0.5 / M_2_SQRTPI * 2);
    /* Winitzki's approximation, then three steps that triple the digits, near 1 on erfc, where 1 - erf is exact. */
    double l = log1p(-size * size), a = 0.147, b = 2 / (M_PI * a) + l / 2;
    double x = sqrt(sqrt(b * b - l / a) - b);
    for (int step = 0; step < 3; step++) {
        double miss = size > 0.5 ? (1 - size) - erfc(x) : erf(x) - size;
        double slope = M_2_SQRTPI * exp(-x * x);
        if (slope == 0)
            break;
        double move = miss / slope;
        x -= move / (1 + x * move);
    }
    return copysign(x, y);
}

/* The x with erfc(x) = tail, for a tail of 0..1: Winitzki's approximation, then Newton's method on the logarithm, which
 * is nearly a parabola. */
AH_SPECIAL double erfc_inverse(double tail)
{
    double l = log(tail * (2 - tail)), a = 0.147, b = 2 / (M_PI * a) + l / 2;
    double x = sqrt(sqrt(b * b - l / a) - b);
    for (int step = 0; step < 5; step++) {
        double rest = erfc(x), slope = M_2_SQRTPI * exp(-x * x);
        if (rest == 0 || slope == 0)
            break;
        x += (log(rest) - log(tail)) * (rest / slope);
    }
    return x;
}

/* The x below which the normal distribution has p. Near 1/2 by erf, whose argument 2 p - 1 is exact there. */
AH_SPECIAL double ah_ndtri_series(double p)
{
    if (!(p > 0 && p < 1))
        return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
    if (p >= 0.25 && p <= 0.75)
        return M_SQRT2 * ah_erfinv_series(2 * p - 1);
    double x = M_SQRT2 * erfc_inverse(p < 0.5 ? 2 * p : 2 * (1 - p));
    return p < 0.5 ? -x : x;
}

AH_SPECIAL double ah_bessel_i_series(int order, double x)
{
    double size = fabs(x), sum = 1, term = 1, result;
    if (x != x)
        return x;
    if (size < 30) { /* the sum over k of (x/2)^(2k + order) / (k! (k + order)!) */
        double quarter = size * size / 4;
        for (int k = 1; k < 200 && term > sum * 1e-18; k++) {
            term *= quarter / ((double)k * (k + order));
            sum += term;
        }
        result = order ? sum * size / 2 : sum;
    } else if (isinf(size)) {
        result = INFINITY;
    } else { /* exp(x) / sqrt(2 pi x) times a series in 1/x, exp in two halves that do not overflow */
        double square = 4.0 * order * order, half = exp(size / 2);
        for (int k = 1; k < 40 && fabs(term) > 1e-18; k++) {
            double odd = 2 * k - 1;
            term *= (odd * odd - square) / (k * 8 * size);
            sum += term;
        }
        result = half * (sum / sqrt(2 * M_PI * size)) * half;
    }
    return order && x < 0 ? -result : result;
}
