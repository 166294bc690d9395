/* Rules of reductions: the gradient is stretched over the dims that were reduced. */
#include <math.h>

#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"
#include "ops/math/renorm.h"

static uint32_t mask_of(const struct ah_rule *r)
{
    return r->state->reduce.dims;
}

/* Restore the reduced dims as dims of size 1, so that `x` broadcasts against the input. */
static struct ah_tensor *with_dims(struct ah_rule *r, struct ah_tensor *x)
{
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    if (!x || x->ndim == input->ndim)
        return x;
    for (int d = 0; d < input->ndim; d++)
        if (mask_of(r) >> d & 1)
            x = ah_r(r, AH_OP_unsqueeze, AH_T(x), AH_I(d));
    return x;
}

/* The same, stretched to the input's shape without copying. */
static struct ah_tensor *reduce_stretched(struct ah_rule *r, struct ah_tensor *x)
{
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    return ah_r(r, AH_OP_expand, AH_T(with_dims(r, x)), AH_INTS_OF(input->size, input->ndim));
}

/* Return the number of inputs of each output. */
static double reduce_folded(const struct ah_rule *r)
{
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    double count = 1;
    for (int d = 0; d < input->ndim; d++)
        if (mask_of(r) >> d & 1)
            count *= (double)input->size[d];
    return count;
}

static struct ah_value dims_of(const struct ah_rule *r)
{
    int64_t dim[AH_MAX_DIMS];
    int count = 0;
    for (int d = 0; d < ah_rule_input(r, 0)->ndim; d++)
        if (mask_of(r) >> d & 1)
            dim[count++] = d;
    return AH_INTS_OF(dim, count);
}

static void reduce_finish(struct ah_rule *r, struct ah_tensor *grad)
{
    r->grad_in[0] = ah_r_to_input(r, grad, 0);
}

AH_BACKWARD(sum, reduce_finish(r, reduce_stretched(r, r->grad_out[0])))

void ah_backward_nansum(struct ah_rule *r)
{
    struct ah_tensor *nan = ah_r(r, AH_OP_isnan, ah_args(r, nansum)->input);
    reduce_finish(r, ah_r_masked(r, reduce_stretched(r, r->grad_out[0]), nan));
}

AH_BACKWARD(mean, reduce_finish(r, reduce_stretched(r, ah_r_scale(r, r->grad_out[0], 1 / reduce_folded(r)))))

void ah_backward_sum_to(struct ah_rule *r)
{
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    reduce_finish(r, ah_r(r, AH_OP_expand, AH_T(r->grad_out[0]), AH_INTS_OF(input->size, input->ndim)));
}

void ah_backward_prod(struct ah_rule *r)
{
    const struct ah_args_prod *arg = ah_args(r, prod);
    struct ah_tensor *others = ah_r(r, AH_OP_prod_others, AH_T(arg->input.tensor), arg->dim);
    reduce_finish(r, ah_r_mul(r, with_dims(r, r->grad_out[0]), others));
}

static struct ah_tensor *reduce_total(struct ah_rule *r, struct ah_tensor *x)
{
    return ah_r(r, AH_OP_sum, AH_T(x), dims_of(r), AH_B(true));
}

/* The slope of sum_i g_i others_i at x_j = 0, from the product of the nonzero elements: where x_j is the only zero all
 * g_i have a part in it, where there is one other only the g of that one, where there are more none. */
static struct ah_tensor *slope_at_zeros(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *zero)
{
    struct ah_tensor *g = r->grad_out[0], *solid = ah_r(r, AH_OP_masked_fill, AH_T(x), AH_T(zero), AH_N(1));
    struct ah_tensor *product = ah_r(r, AH_OP_prod, AH_T(solid), ah_args(r, prod_others)->dim, AH_B(true));
    struct ah_tensor *rest = reduce_total(r, ah_r_masked(r, ah_r_div(r, g, solid), zero));
    struct ah_tensor *of_zeros = ah_r_sub(r, reduce_total(r, ah_r_where(r, zero, g, AH_N(0))), g);
    struct ah_tensor *count = reduce_total(r, zero);
    struct ah_tensor *several = ah_r_where(r, ah_r(r, AH_OP_eq, AH_T(count), AH_N(2)), of_zeros, AH_N(0));
    return ah_r_mul(r, product, ah_r_where(r, ah_r(r, AH_OP_eq, AH_T(count), AH_N(1)), rest, AH_T(several)));
}

/* others_i = prod / x_i: d/dx_j of sum_i g_i others_i = (sum_i g_i others_i - g_j others_j) / x_j. */
void ah_backward_prod_others(struct ah_rule *r)
{
    const struct ah_args_prod_others *arg = ah_args(r, prod_others);
    struct ah_tensor *x = arg->input.tensor, *zero = ah_r(r, AH_OP_eq, AH_T(x), AH_N(0));
    struct ah_tensor *each = ah_r_mul(r, r->grad_out[0], ah_r(r, AH_OP_prod_others, AH_T(x), arg->dim));
    struct ah_tensor *solid = ah_r(r, AH_OP_masked_fill, AH_T(x), AH_T(zero), AH_N(1));
    struct ah_tensor *slope = ah_r_div(r, ah_r_sub(r, reduce_total(r, each), each), solid);
    reduce_finish(r, ah_r_where(r, zero, slope_at_zeros(r, x, zero), AH_T(slope)));
}

static struct ah_tensor *reduce_deviation(struct ah_rule *r)
{
    struct ah_tensor *x = ah_args(r, std)->input.tensor;
    return ah_r_sub(r, x, ah_r(r, AH_OP_mean, AH_T(x), dims_of(r), AH_B(true)));
}

void ah_backward_var(struct ah_rule *r)
{
    double rest = reduce_folded(r) - r->state->reduce.correction;
    struct ah_tensor *g = ah_r_scale(r, with_dims(r, r->grad_out[0]), 2 / rest);
    reduce_finish(r, ah_r_mul(r, g, reduce_deviation(r)));
}

/* 0 where the deviation is 0, as in PyTorch. */
void ah_backward_std(struct ah_rule *r)
{
    double rest = reduce_folded(r) - r->state->reduce.correction;
    struct ah_tensor *out = r->out[0];
    struct ah_tensor *g = ah_r_div(r, r->grad_out[0], ah_r_scale(r, out, rest));
    g = ah_r(r, AH_OP_masked_fill, AH_T(g), AH_T(ah_r(r, AH_OP_eq, AH_T(out), AH_N(0))), AH_N(0));
    reduce_finish(r, ah_r_mul(r, with_dims(r, g), reduce_deviation(r)));
}

/* Divide the gradient equally among the elements equal to `value`. */
static struct ah_tensor *reduce_shared(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *value,
                                       struct ah_tensor *g)
{
    struct ah_tensor *hit = ah_r(r, AH_OP_eq, AH_T(x), AH_T(value));
    struct ah_tensor *count = ah_r(r, AH_OP_sum, AH_T(hit), dims_of(r), AH_B(true));
    return ah_r(r, AH_OP_where, AH_T(hit), AH_T(ah_r_div(r, g, count)), AH_N(0));
}

AH_BACKWARD(amax, reduce_finish(r, reduce_shared(r, ah_args(r, amax)->input.tensor, with_dims(r, r->out[0]),
                                                 with_dims(r, r->grad_out[0]))))

/* The gradient of x, not stretched to its shape yet, from that of its norm `out`; both have the reduced dims. */
static struct ah_tensor *reduce_norm(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *out, struct ah_tensor *g,
                                     double p)
{
    struct ah_tensor *sign = p == 2 ? NULL : ah_r(r, AH_OP_sign, AH_T(x));
    if (p == 1)
        return ah_r_mul(r, g, sign);
    if (isinf(p))
        return ah_r_mul(r, sign, reduce_shared(r, ah_r(r, AH_OP_abs, AH_T(x)), out, g));
    /* sign(x) (|x| / out)^(p-1), and 0 where the norm is 0. The quotient first: it is at most 1, where powers of its
     * parts may be beyond the numbers of a half. */
    struct ah_tensor *zero = ah_r(r, AH_OP_eq, AH_T(out), AH_N(0));
    struct ah_tensor *unit = ah_r_div(r, p == 2 ? x : ah_r(r, AH_OP_abs, AH_T(x)),
                                      ah_r(r, AH_OP_masked_fill, AH_T(out), AH_T(zero), AH_N(1)));
    if (p != 2) {
        if (p < 2) /* the power or its slope is infinite at 0, where the sign is 0 */
            unit = ah_r(r, AH_OP_masked_fill, AH_T(unit), AH_T(ah_r(r, AH_OP_eq, AH_T(x), AH_N(0))), AH_N(1));
        unit = ah_r_mul(r, sign, ah_r(r, AH_OP_pow, AH_T(unit), AH_N(p - 1)));
    }
    return ah_r_mul(r, ah_r_masked(r, unit, zero), g);
}

void ah_backward_norm(struct ah_rule *r)
{
    const struct ah_args_norm *arg = ah_args(r, norm);
    if (arg->p.number == 0)
        r->grad_in[0] = ah_r_zeros_input(r, 0);
    else
        reduce_finish(r, reduce_norm(r, arg->input.tensor, with_dims(r, r->out[0]), with_dims(r, r->grad_out[0]),
                                     arg->p.number));
}

/* y = f x with f = most / (norm + eps) where the norm is above it: g f + sum(g x) df/dnorm dnorm/dx. */
void ah_backward_renorm(struct ah_rule *r)
{
    const struct ah_args_renorm *arg = ah_args(r, renorm);
    struct ah_tensor *x = arg->input.tensor, *g = r->grad_out[0];
    struct ah_tensor *norm = ah_r(r, AH_OP_norm, AH_T(x), arg->p, dims_of(r), AH_B(true));
    struct ah_tensor *above = ah_r(r, AH_OP_gt, AH_T(norm), arg->maxnorm);
    struct ah_tensor *shifted = ah_r_shift(r, norm, AH_RENORM_EPS);
    struct ah_tensor *factor = ah_r(r, AH_OP_div, arg->maxnorm, AH_T(shifted));
    struct ah_tensor *along = ah_r(r, AH_OP_sum, AH_T(ah_r_mul(r, g, x)), dims_of(r), AH_B(true));
    along = ah_r_where(r, above, ah_r_mul(r, along, ah_r_scale(r, ah_r_div(r, factor, shifted), -1)), AH_N(0));
    struct ah_tensor *scaled = ah_r_mul(r, g, ah_r_where(r, above, factor, AH_N(1)));
    reduce_finish(r, ah_r_add(r, scaled, reduce_norm(r, x, norm, along, arg->p.number)));
}

/* If all inputs are -infinity so is the result, and its gradient is 0, not NaN. */
void ah_backward_logsumexp(struct ah_rule *r)
{
    struct ah_tensor *out = with_dims(r, r->out[0]);
    struct ah_tensor *nothing = ah_r(r, AH_OP_eq, AH_T(out), AH_N(-INFINITY));
    struct ah_tensor *base = ah_r(r, AH_OP_masked_fill, AH_T(out), AH_T(nothing), AH_N(0));
    struct ah_tensor *weight = ah_r(r, AH_OP_exp, AH_T(ah_r_sub(r, ah_args(r, logsumexp)->input.tensor, base)));
    reduce_finish(r, ah_r_mul(r, with_dims(r, r->grad_out[0]), weight));
}

/* The largest or smallest along a dim: the gradient is scattered to its index. */
void ah_backward_along(struct ah_rule *r)
{
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    struct ah_tensor *index = with_dims(r, r->out[1]), *g = with_dims(r, r->grad_out[0]);
    if (input->ndim == 0) {
        reduce_finish(r, g);
        return;
    }
    reduce_finish(r, ah_r(r, AH_OP_gather_backward, AH_T(g), AH_INTS_OF(input->size, input->ndim),
                          AH_I(__builtin_ctz(mask_of(r))), AH_T(index)));
}

/* Summing from the other end. */
void ah_backward_running_sum(struct ah_rule *r)
{
    enum ah_opid back = r->node->op->id == AH_OP_cumsum ? AH_OP_cumsum_reverse : AH_OP_cumsum;
    reduce_finish(r, ah_r(r, back, AH_T(r->grad_out[0]), ah_args(r, running_sum)->dim));
}
