/* Rules of the losses; fused kernels where only first derivatives are wanted, ops otherwise. */
#include "autograd/graph.h"
#include "autograd/rules.h"

/* The loss is linear in its input, so this is its own adjoint's adjoint; the state holds the sum of the weights. */
int ah_backward_class_nll(struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_class_nll_backward, AH_T(r->grad_out[0]), r->arg[1], r->arg[2],
                         AH_INTS_OF(meta->size, meta->ndim), r->arg[3], r->arg[4], r->arg[5],
                         AH_N(r->state->loss.total));
    return r->status;
}

int ah_backward_class_nll_backward(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_class_nll, AH_T(r->grad_out[0]), r->arg[1], r->arg[2], r->arg[4],
                         r->arg[5], r->arg[6]);
    return r->status;
}

int ah_backward_cross_entropy_rows(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0], *x = ah_r_saved(r, 0), *t = ah_r_saved(r, 1), *w = ah_r_saved(r, 2);
    if (!ah_grad_enabled) {
        r->grad_in[0] = ah_r(r, AH_OP_cross_entropy_rows_backward, AH_T(g), AH_T(x), AH_T(r->extra[0]), AH_T(t),
                             AH_T(w), r->arg[3], r->arg[4], r->arg[5], AH_N(r->state->loss.total));
        return r->status;
    }
    /* Higher derivatives are wanted: the same by ops that have them. */
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    struct ah_tensor *log_probability = ah_r(r, AH_OP_log_softmax, AH_T(x), AH_I(1));
    struct ah_tensor *inner = ah_r(r, AH_OP_class_nll_backward, AH_T(g), AH_T(t), AH_T(w),
                                   AH_INTS_OF(meta->size, meta->ndim), r->arg[3], r->arg[4], r->arg[5],
                                   AH_N(r->state->loss.total));
    r->grad_in[0] = ah_r(r, AH_OP_log_softmax_backward, AH_T(inner), AH_T(log_probability), AH_I(1));
    return r->status;
}

/* -(t log p + (1 - t) log(1 - p)): g (p - t) / (p (1 - p)), the divisor kept from 0 as in PyTorch. */
int ah_backward_probability_nll(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0], *p = ah_r_saved(r, 0), *t = ah_r_saved(r, 1);
    struct ah_tensor *rest = ah_r_shift(r, ah_r_neg(r, p), 1);
    if (r->needs[0]) {
        struct ah_tensor *divisor = ah_r(r, AH_OP_clamp_min, AH_T(ah_r_mul(r, rest, p)), AH_N(1e-12));
        r->grad_in[0] = ah_r_div(r, ah_r_mul(r, g, ah_r_sub(r, p, t)), divisor);
    }
    if (r->needs[1]) {
        struct ah_tensor *logit = ah_r_sub(r, ah_r(r, AH_OP_log, AH_T(p)), ah_r(r, AH_OP_log, AH_T(rest)));
        r->grad_in[1] = ah_r_neg(r, ah_r_mul(r, g, logit));
    }
    return r->status;
}

/* (1 - t) x + l softplus(-x) with l = 1 + (w - 1) t; softplus(-x) is this loss for the target 1. */
int ah_backward_logit_nll(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0], *x = ah_r_saved(r, 0), *t = ah_r_saved(r, 1), *w = ah_r_saved(r, 2);
    struct ah_tensor *extra = w ? ah_r_shift(r, w, -1) : NULL, *softplus = NULL;
    if (r->needs[0]) {
        struct ah_tensor *slope = ah_r_sub(r, ah_r(r, AH_OP_sigmoid, AH_T(x)), t);
        if (w) {
            struct ah_tensor *tail = ah_r(r, AH_OP_sigmoid, AH_T(ah_r_neg(r, x)));
            slope = ah_r_sub(r, slope, ah_r_mul(r, ah_r_mul(r, extra, t), tail));
        }
        r->grad_in[0] = ah_r_mul(r, g, slope);
    }
    if (w)
        softplus = ah_r(r, AH_OP_logit_nll, AH_T(x), AH_T(ah_r(r, AH_OP_ones_like, AH_T(x))));
    if (r->needs[1]) {
        struct ah_tensor *slope = ah_r_neg(r, x);
        if (w)
            slope = ah_r_add(r, slope, ah_r_mul(r, extra, softplus));
        r->grad_in[1] = ah_r_mul(r, g, slope);
    }
    if (w && r->needs[2])
        r->grad_in[2] = ah_r_to_input(r, ah_r_mul(r, g, ah_r_mul(r, t, softplus)), 2);
    return r->status;
}
