/* Rules of the activations with numbers or a second input: the family of elu, the shrinks, prelu and glu. A gradient is
 * cut by masks, so that unused elements cannot spoil it. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

static struct ah_tensor *activation_positive(struct ah_rule *r, struct ah_tensor *x)
{
    return ah_r(r, AH_OP_gt, AH_T(x), AH_N(0));
}

static struct ah_tensor *elu_slope(struct ah_rule *r, struct ah_tensor *g, struct ah_tensor *x, double alpha,
                                   double scale, double input_scale)
{
    return ah_r(r, AH_OP_elu_backward, AH_T(g), AH_T(x), AH_N(alpha), AH_N(scale), AH_N(input_scale));
}

AH_BACKWARD_WITH(elu, elu,
                 ah_r_give(r, 0, elu_slope(r, r->grad_out[0], ah_given(&arg->input), arg->alpha.number, 1, 1)))

void ah_backward_elu_scaled(struct ah_rule *r)
{
    const struct ah_args_elu_scaled *arg = ah_args(r, elu_scaled);
    ah_r_give(r, 0, elu_slope(r, r->grad_out[0], ah_given(&arg->input), arg->alpha.number, arg->scale.number,
                              arg->input_scale.number));
}

/* Above 0 the slope is constant; below it is its own derivative but for input_scale. */
void ah_backward_elu_backward(struct ah_rule *r)
{
    const struct ah_args_elu_backward *arg = ah_args(r, elu_backward);
    double alpha = arg->alpha.number, scale = arg->scale.number, input_scale = arg->input_scale.number;
    struct ah_tensor *gg = r->grad_out[0], *x = ah_given(&arg->input);
    ah_r_give(r, 0, elu_slope(r, gg, x, alpha, scale, input_scale));
    if (r->needs[1]) {
        struct ah_tensor *curved = elu_slope(r, ah_r_mul(r, gg, ah_given(&arg->grad)), x, alpha, scale, input_scale);
        curved = ah_r_scale(r, curved, input_scale);
        ah_r_give(r, 1, ah_r(r, AH_OP_masked_fill, AH_T(curved), AH_T(activation_positive(r, x)), AH_N(0)));
    }
}

AH_BACKWARD_WITH(shrink, hardshrink,
                 ah_r_give(r, 0, ah_r(r, AH_OP_shrink_backward, AH_T(r->grad_out[0]), arg->input, arg->lambd)))

void ah_backward_shrink_backward(struct ah_rule *r)
{
    const struct ah_args_shrink_backward *arg = ah_args(r, shrink_backward);
    ah_r_give(r, 0, ah_r(r, AH_OP_shrink_backward, AH_T(r->grad_out[0]), arg->input, arg->lambd));
    ah_r_give(r, 1, ah_r_zeros_input(r, 1));
}

void ah_backward_threshold(struct ah_rule *r)
{
    const struct ah_args_threshold *arg = ah_args(r, threshold);
    struct ah_tensor *below = ah_r(r, AH_OP_le, arg->input, arg->threshold);
    ah_r_give(r, 0, ah_r(r, AH_OP_masked_fill, AH_T(r->grad_out[0]), AH_T(below), AH_N(0)));
}

void ah_backward_sloped(struct ah_rule *r)
{
    const struct ah_args_sloped *arg = ah_args(r, sloped);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input), *above = activation_positive(r, x);
    ah_r_give(r, 0, ah_r(r, AH_OP_where, AH_T(above), AH_T(g), AH_T(ah_r_mul(r, g, ah_given(&arg->slope)))));
    ah_r_give(r, 1, ah_r(r, AH_OP_masked_fill, AH_T(ah_r_mul(r, g, x)), AH_T(above), AH_N(0)));
}

void ah_backward_gated(struct ah_rule *r)
{
    const struct ah_args_gated *arg = ah_args(r, gated);
    struct ah_tensor *g = r->grad_out[0], *gate = ah_given(&arg->gate);
    ah_r_give(r, 0, ah_r(r, AH_OP_gated, AH_T(g), AH_T(gate)));
    ah_r_give(r, 1, ah_r(r, AH_OP_sigmoid_backward, AH_T(ah_r_mul(r, g, ah_given(&arg->input))),
                         AH_T(ah_r(r, AH_OP_sigmoid, AH_T(gate)))));
}
