/* Rules of the rest of libm, of special functions and of functions of pairs: grad * slope, the slope written in ops, so
 * that second derivatives follow. Saved integer inputs are cast to the gradient's dtype, saved numbers stay numbers. */
#include <math.h>

#include "autograd/graph/rules.h"

static struct ah_tensor *special_except(struct ah_rule *r, struct ah_tensor *mask, struct ah_tensor *x)
{
    return ah_r(r, AH_OP_where, AH_T(mask), AH_N(0), AH_T(x));
}

/* x^2 + addend */
static struct ah_tensor *square_plus(struct ah_rule *r, struct ah_tensor *x, double addend)
{
    return ah_r_shift(r, ah_r_mul(r, x, x), addend);
}

/* 1 - x^2: +0 at 1 and -1, so that a quotient by it or by its root is +infinity there. */
static struct ah_tensor *below_one(struct ah_rule *r, struct ah_tensor *x)
{
    return ah_r(r, AH_OP_sub, AH_N(1), AH_T(ah_r_mul(r, x, x)));
}

/* exp(factor x^2) */
static struct ah_tensor *special_bell(struct ah_rule *r, struct ah_tensor *x, double factor)
{
    return ah_r_unary(r, AH_OP_exp, ah_r_scale(r, ah_r_mul(r, x, x), factor));
}

#define X ah_given(&arg->input)
#define OUT r->out[0]

AH_UNARY_RULE(asin, ah_r_mul(r, g, ah_r_unary(r, AH_OP_rsqrt, below_one(r, X))))
AH_UNARY_RULE(acos, ah_r_neg(r, ah_r_mul(r, g, ah_r_unary(r, AH_OP_rsqrt, below_one(r, X)))))
AH_UNARY_RULE(sinh, ah_r_mul(r, g, ah_r_unary(r, AH_OP_cosh, X)))
AH_UNARY_RULE(cosh, ah_r_mul(r, g, ah_r_unary(r, AH_OP_sinh, X)))
AH_UNARY_RULE(asinh, ah_r_mul(r, g, ah_r_unary(r, AH_OP_rsqrt, square_plus(r, X, 1))))
AH_UNARY_RULE(acosh, ah_r_mul(r, g, ah_r_unary(r, AH_OP_rsqrt, square_plus(r, X, -1))))
AH_UNARY_RULE(atanh, ah_r_div(r, g, below_one(r, X)))
AH_UNARY_RULE(exp2, ah_r_mul(r, g, ah_r_scale(r, OUT, M_LN2)))
AH_UNARY_RULE(erfc, ah_r_mul(r, g, ah_r_scale(r, special_bell(r, X, -1), -M_2_SQRTPI)))
AH_UNARY_RULE(erfinv, ah_r_mul(r, g, ah_r_scale(r, special_bell(r, OUT, 1), 1 / M_2_SQRTPI)))
AH_UNARY_RULE(ndtri, ah_r_mul(r, g, ah_r_scale(r, special_bell(r, OUT, 0.5), M_SQRT2 / (M_2_SQRTPI / 2))))
AH_UNARY_RULE(lgamma, ah_r_mul(r, g, ah_r_unary(r, AH_OP_digamma, X)))
AH_UNARY_RULE(digamma, ah_r_mul(r, g, ah_r(r, AH_OP_polygamma, AH_T(X), AH_I(1))))
AH_UNARY_RULE(polygamma, ah_r_mul(r, g, ah_r(r, AH_OP_polygamma, AH_T(X), AH_I(arg->n.integer + 1))))
AH_UNARY_RULE(i0, ah_r_mul(r, g, ah_r_unary(r, AH_OP_i1, X)))
AH_UNARY_RULE(deg2rad, ah_r_scale(r, g, M_PI / 180))
AH_UNARY_RULE(rad2deg, ah_r_scale(r, g, 180 / M_PI))
AH_UNARY_RULE(nan_to_num, ah_r_where(r, ah_r_unary(r, AH_OP_isfinite, X), g, AH_N(0)))

/* i0 - i1 / x, which is 1/2 at 0. */
void ah_backward_i1(struct ah_rule *r)
{
    struct ah_tensor *x = ah_given(&ah_args(r, i1)->input), *zero = ah_r_compare(r, AH_OP_eq, x, 0);
    struct ah_tensor *safe = ah_r(r, AH_OP_masked_fill, AH_T(x), AH_T(zero), AH_N(1));
    struct ah_tensor *slope = ah_r_sub(r, ah_r_unary(r, AH_OP_i0, x), ah_r_div(r, OUT, safe));
    slope = ah_r(r, AH_OP_masked_fill, AH_T(slope), AH_T(zero), AH_N(0.5));
    ah_r_give(r, 0, ah_r_mul(r, r->grad_out[0], slope));
}

/* (cos(pi x) - sinc x) / x, 0 at 0. */
void ah_backward_sinc(struct ah_rule *r)
{
    struct ah_tensor *x = ah_given(&ah_args(r, sinc)->input), *zero = ah_r_compare(r, AH_OP_eq, x, 0);
    struct ah_tensor *safe = ah_r(r, AH_OP_masked_fill, AH_T(x), AH_T(zero), AH_N(1));
    struct ah_tensor *cosine = ah_r_unary(r, AH_OP_cos, ah_r_scale(r, x, M_PI));
    struct ah_tensor *slope = ah_r_div(r, ah_r_sub(r, cosine, OUT), safe);
    ah_r_give(r, 0, ah_r_mul(r, r->grad_out[0], special_except(r, zero, slope)));
}

/* 1 / (x (1 - x)) between the bounds; outside 0 with eps, nan without. */
void ah_backward_logit(struct ah_rule *r)
{
    const struct ah_args_logit *arg = ah_args(r, logit);
    bool bounded = arg->eps.kind == AH_NUMBER && arg->eps.number >= 0;
    double low = bounded ? arg->eps.number : 0;
    struct ah_tensor *x = X, *slope = ah_r_div(r, r->grad_out[0], ah_r_mul(r, x, ah_r(r, AH_OP_sub, AH_N(1), AH_T(x))));
    struct ah_tensor *inside = ah_r(r, AH_OP_logical_and, AH_T(ah_r_compare(r, AH_OP_ge, x, low)),
                                    AH_T(ah_r_compare(r, AH_OP_le, x, 1 - low)));
    ah_r_give(r, 0, ah_r(r, AH_OP_where, AH_T(inside), AH_T(slope), AH_N(bounded ? 0 : (double)NAN)));
}

/* Cast an integer operand of a function of pairs to the gradient's dtype, since functions of it would be float32. */
static struct ah_tensor *in_dtype(struct ah_rule *r, const struct ah_value *value)
{
    struct ah_tensor *x = ah_given(value);
    return !x || x->wrapped || ah_dtype_is_float(x->dtype)
               ? x
               : ah_r(r, AH_OP_to, AH_T(x), AH_D(r->grad_out[0]->dtype));
}

void ah_backward_atan2(struct ah_rule *r)
{
    const struct ah_args_atan2 *arg = ah_args(r, atan2);
    struct ah_tensor *y = in_dtype(r, &arg->input), *x = in_dtype(r, &arg->other);
    struct ah_tensor *square = ah_r_add(r, ah_r_mul(r, y, y), ah_r_mul(r, x, x));
    struct ah_tensor *scaled =
        special_except(r, ah_r_compare(r, AH_OP_eq, square, 0), ah_r_div(r, r->grad_out[0], square));
    ah_r_give(r, 0, ah_r_mul(r, scaled, x));
    ah_r_give(r, 1, ah_r_neg(r, ah_r_mul(r, scaled, y)));
}

void ah_backward_hypot(struct ah_rule *r)
{
    const struct ah_args_hypot *arg = ah_args(r, hypot);
    struct ah_tensor *scaled = ah_r_div(r, r->grad_out[0], OUT);
    ah_r_give(r, 0, ah_r_mul(r, scaled, ah_given(&arg->input)));
    ah_r_give(r, 1, ah_r_mul(r, scaled, ah_given(&arg->other)));
}

/* 1 or -1 where the sign stays or turns, 0 at 0; the sign itself does not move. */
void ah_backward_copysign(struct ah_rule *r)
{
    struct ah_tensor *x = in_dtype(r, &ah_args(r, copysign)->input);
    struct ah_tensor *turn = ah_r_mul(r, ah_r_unary(r, AH_OP_sign, x), ah_r_unary(r, AH_OP_sign, OUT));
    ah_r_give(r, 0, ah_r_mul(r, r->grad_out[0], turn));
    ah_r_give(r, 1, ah_r_zeros_input(r, 1));
}

/* The share of each of b^x and b^y in their sum, a logistic function of the distance; `rate` is log b. */
static void log_sum_rule(struct ah_rule *r, double rate)
{
    const struct ah_args_logaddexp *arg = ah_args(r, logaddexp);
    struct ah_tensor *distance = ah_r_scale(r, ah_r_sub(r, ah_given(&arg->input), ah_given(&arg->other)), rate);
    ah_r_give(r, 0, ah_r_mul(r, r->grad_out[0], ah_r_unary(r, AH_OP_sigmoid, distance)));
    ah_r_give(r, 1, ah_r_mul(r, r->grad_out[0], ah_r_unary(r, AH_OP_sigmoid, ah_r_neg(r, distance))));
}

/* An element that stays in place has no slope, as in PyTorch. */
void ah_backward_nextafter(struct ah_rule *r)
{
    const struct ah_args_nextafter *arg = ah_args(r, nextafter);
    ah_r_give(r, 0, ah_r_where(r, ah_r(r, AH_OP_ne, arg->input, arg->other), r->grad_out[0], AH_N(0)));
    ah_r_give(r, 1, ah_r_zeros_input(r, 1));
}

AH_BACKWARD(logaddexp, log_sum_rule(r, 1))
AH_BACKWARD(logaddexp2, log_sum_rule(r, M_LN2))

void ah_backward_xlogy(struct ah_rule *r)
{
    const struct ah_args_xlogy *arg = ah_args(r, xlogy);
    struct ah_tensor *g = r->grad_out[0], *x = in_dtype(r, &arg->input), *y = in_dtype(r, &arg->other);
    if (r->needs[0]) { /* 0 where the result is 0 by definition */
        struct ah_tensor *flat = ah_r(r, AH_OP_logical_and, AH_T(ah_r_compare(r, AH_OP_eq, x, 0)),
                                      AH_T(ah_r_compare(r, AH_OP_le, y, 0)));
        ah_r_give(r, 0, special_except(r, flat, ah_r(r, AH_OP_xlogy, AH_T(g), AH_T(y))));
    }
    ah_r_give(r, 1, ah_r_div(r, ah_r_mul(r, g, x), y));
}

void ah_backward_ldexp(struct ah_rule *r)
{
    const struct ah_args_ldexp *arg = ah_args(r, ldexp);
    struct ah_tensor *power = ah_r_unary(r, AH_OP_exp2, in_dtype(r, &arg->other));
    struct ah_tensor *scaled = ah_r_mul(r, r->grad_out[0], power);
    ah_r_give(r, 0, scaled);
    ah_r_give(r, 1, ah_r_mul(r, scaled, ah_r_scale(r, in_dtype(r, &arg->input), M_LN2)));
}

/* The gradient belongs to the operand that was chosen, half to each where they are equal. */
static void special_taken(struct ah_rule *r, enum ah_opid first)
{
    const struct ah_args_fmax *arg = ah_args(r, fmax);
    struct ah_tensor *tie = ah_r(r, AH_OP_eq, arg->input, arg->other);
    struct ah_tensor *g = ah_r(r, AH_OP_where, AH_T(tie), AH_T(ah_r_scale(r, r->grad_out[0], 0.5)),
                               AH_T(r->grad_out[0]));
    struct ah_tensor *mask = ah_r(r, AH_OP_logical_or, AH_T(ah_r(r, first, arg->input, arg->other)),
                                  AH_T(ah_r_unary(r, AH_OP_isnan, ah_given(&arg->other))));
    ah_r_give(r, 0, ah_r_where(r, mask, g, AH_N(0)));
    ah_r_give(r, 1, ah_r(r, AH_OP_where, AH_T(tie), AH_T(g), AH_T(special_except(r, mask, g))));
}

AH_BACKWARD(fmax, special_taken(r, AH_OP_ge))
AH_BACKWARD(fmin, special_taken(r, AH_OP_le))
