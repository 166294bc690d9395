/* Special functions in double, which libm lacks. Errors are a few units in the last place away from zeros of the
 * function; poles are infinities or nan as in PyTorch. */
#pragma once

double ah_lgamma(double x);              /* log |gamma(x)|; leaves libm's signgam alone */
double ah_ndtri(double p);                /* the inverse of the normal distribution's function */
double ah_polygamma(int order, double x); /* the order-th derivative of digamma */
double ah_bessel_i(int order, double x); /* modified Bessel function of the first kind, order 0 or 1 */
