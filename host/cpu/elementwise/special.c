/* The functions of base/numeric/special_series.h for the CPU, and the C library's log-gamma. */
#include "cpu/elementwise/special.h"

#define AH_SPECIAL static
#include "base/numeric/special_series.h"

double ah_lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

double ah_polygamma(int order, double x)
{
    return ah_polygamma_series(order, x);
}

double ah_ndtri(double p)
{
    return ah_ndtri_series(p);
}

double ah_bessel_i(int order, double x)
{
    return ah_bessel_i_series(order, x);
}
