/* The rule of attention that keeps no scores: one kernel gives the gradients of query, key and value from the
 * logarithms of the sums. */
#include "autograd/rules.h"

int ah_backward_attention(struct ah_rule *r)
{
    const struct ah_args_attention *arg = ah_args(r, attention);
    struct ah_tensor *grad[3];
    const struct ah_value args[] = {
        AH_T(r->grad_out[0]), arg->query, arg->key, arg->value, arg->mask, AH_T(r->extra[0]), AH_T(r->out[0]),
        AH_T(r->out[1]), AH_T(r->extra[1]), arg->window, arg->scale, arg->dropout_p,
    };
    ah_rule_ops(r, AH_OP_attention_backward, args, 12, grad, 3);
    for (int i = 0; i < 3; i++)
        ah_r_give(r, i, grad[i]);
    return r->status;
}
