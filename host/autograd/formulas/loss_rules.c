/* Rules of the losses; fused kernels where only first derivatives are wanted, ops otherwise. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

/* The loss is linear in its input, so this is its own adjoint's adjoint; extra[1] is the sum of the weights. */
void ah_backward_class_nll(struct ah_rule *r)
{
    const struct ah_args_class_nll *arg = ah_args(r, class_nll);
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_class_nll_backward, AH_T(r->grad_out[0]), arg->target, arg->weight,
                         AH_INTS_OF(meta->size, meta->ndim), arg->ignore_index, arg->reduction, arg->label_smoothing,
                         AH_T(r->extra[1]));
}

AH_GRADIENT_WITH(class_nll_backward, class_nll_backward,
                 ah_r(r, AH_OP_class_nll, AH_T(r->grad_out[0]), arg->target, arg->weight, arg->ignore_index,
                      arg->reduction, arg->label_smoothing))

void ah_backward_cross_entropy_rows(struct ah_rule *r)
{
    const struct ah_args_cross_entropy_rows *arg = ah_args(r, cross_entropy_rows);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input), *t = ah_given(&arg->target);
    struct ah_tensor *w = ah_given(&arg->weight);
    if (!ah_grad_enabled) {
        r->grad_in[0] = ah_r_over(r, AH_OP_cross_entropy_rows_backward, AH_T(x), AH_T(g), AH_T(r->extra[0]), AH_T(t),
                                  AH_T(w), arg->ignore_index, arg->reduction, arg->label_smoothing,
                                  AH_T(r->extra[1]));
        return;
    }
    /* Higher derivatives are wanted: the same by ops that have them, in the dtype of the loss. */
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    if (x->dtype != g->dtype)
        x = ah_r(r, AH_OP_to, AH_T(x), AH_D(g->dtype));
    struct ah_tensor *log_probability = ah_r(r, AH_OP_log_softmax, AH_T(x), AH_I(1));
    struct ah_tensor *inner = ah_r(r, AH_OP_class_nll_backward, AH_T(g), AH_T(t), AH_T(w),
                                   AH_INTS_OF(meta->size, meta->ndim), arg->ignore_index, arg->reduction,
                                   arg->label_smoothing, AH_T(r->extra[1]));
    r->grad_in[0] = ah_r(r, AH_OP_log_softmax_backward, AH_T(inner), AH_T(log_probability), AH_I(1));
}

/* -(t log p + (1 - t) log(1 - p)): g (p - t) / (p (1 - p)), the divisor kept from 0 as in PyTorch. */
void ah_backward_probability_nll(struct ah_rule *r)
{
    const struct ah_args_probability_nll *arg = ah_args(r, probability_nll);
    struct ah_tensor *g = r->grad_out[0], *p = ah_given(&arg->input), *t = ah_given(&arg->target);
    struct ah_tensor *rest = ah_r_shift(r, ah_r_neg(r, p), 1);
    if (r->needs[0]) {
        struct ah_tensor *divisor = ah_r(r, AH_OP_clamp_min, AH_T(ah_r_mul(r, rest, p)), AH_N(1e-12));
        r->grad_in[0] = ah_r_div(r, ah_r_mul(r, g, ah_r_sub(r, p, t)), divisor);
    }
    if (r->needs[1]) {
        struct ah_tensor *logit = ah_r_sub(r, ah_r(r, AH_OP_log, AH_T(p)), ah_r(r, AH_OP_log, AH_T(rest)));
        r->grad_in[1] = ah_r_neg(r, ah_r_mul(r, g, logit));
    }
}

/* (1 - t) x + l softplus(-x) with l = 1 + (w - 1) t; softplus(-x) is this loss for the target 1. */
void ah_backward_logit_nll(struct ah_rule *r)
{
    const struct ah_args_logit_nll *arg = ah_args(r, logit_nll);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input), *t = ah_given(&arg->target);
    struct ah_tensor *w = ah_given(&arg->pos_weight);
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
}

/* Distances: the slope of the quadratic part, cut at that of the linear one. */
static void distance_rule(struct ah_rule *r, struct ah_tensor *scaled, double bound)
{
    struct ah_tensor *slope = ah_r(r, AH_OP_hardtanh, AH_T(scaled), AH_N(-bound), AH_N(bound));
    struct ah_tensor *grad = ah_r_mul(r, r->grad_out[0], slope);
    ah_r_give(r, 0, grad);
    ah_r_give(r, 1, ah_r_neg(r, grad));
}

void ah_backward_squared_difference(struct ah_rule *r)
{
    const struct ah_args_squared_difference *arg = ah_args(r, squared_difference);
    struct ah_tensor *twice = ah_r_scale(r, r->grad_out[0], 2);
    struct ah_tensor *grad = ah_r_mul(r, ah_r_sub(r, ah_given(&arg->input), ah_given(&arg->target)), twice);
    ah_r_give(r, 0, grad);
    ah_r_give(r, 1, ah_r_neg(r, grad));
}

void ah_backward_smooth_l1(struct ah_rule *r)
{
    const struct ah_args_smooth_l1 *arg = ah_args(r, smooth_l1);
    struct ah_tensor *difference = ah_r_sub(r, ah_given(&arg->input), ah_given(&arg->target));
    distance_rule(r, ah_r(r, AH_OP_div, AH_T(difference), AH_N(arg->beta.number)), 1);
}

AH_BACKWARD_WITH(huber, huber,
                 distance_rule(r, ah_r_sub(r, ah_given(&arg->input), ah_given(&arg->target)), arg->delta.number))
AH_GRADIENT_WITH(ctc, ctc,
                 ah_r(r, AH_OP_ctc_backward, AH_T(r->grad_out[0]), arg->log_probs, arg->targets, arg->input_lengths,
                      arg->target_lengths, AH_T(r->extra[0]), AH_T(r->extra[1]), arg->blank, arg->zero_infinity))
