/* The rule of recurrent layers: one kernel computes all gradients of a layer's direction. It has no derivative; neither
 * have PyTorch's libraries for GPUs. */
#include "autograd/graph/rules.h"

void ah_backward_recurrent(struct ah_rule *r)
{
    const struct ah_args_recurrent *arg = ah_args(r, recurrent);
    struct ah_tensor *grad[4] = {NULL}, *cell = ah_given(&arg->cell);
    int weight = r->state->affine.weight, bias = r->state->affine.bias;
    const struct ah_value args[] = {
        AH_T(r->grad_out[0]), AH_T(r->grad_out[1]), AH_T(cell ? r->grad_out[2] : NULL), AH_T(r->out[0]), arg->hidden,
        arg->cell, arg->weight, arg->batch_sizes, AH_T(r->extra[0]), AH_T(r->extra[1]), arg->kind, arg->reverse,
    };
    ah_rule_ops(r, AH_OP_recurrent_backward, args, 12, grad, cell ? 4 : 3);
    int64_t width = ah_rule_input(r, 1)->size[1];
    ah_r_give(r, 0, grad[0]);
    ah_r_give(r, 1, grad[1]);
    if (cell)
        ah_r_give(r, 2, grad[3]);
    ah_r_give(r, weight, ah_r(r, AH_OP_narrow, AH_T(grad[2]), AH_I(1), AH_I(0), AH_I(width)));
    if (bias)
        ah_r_give(r, bias, ah_r(r, AH_OP_select, AH_T(grad[2]), AH_I(1), AH_I(width)));
}
