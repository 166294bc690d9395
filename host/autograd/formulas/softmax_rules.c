/* Rules of softmax, its logarithm, and of their adjoints. */
#include "autograd/graph/rules.h"

AH_GRADIENT(softmax, ah_r(r, AH_OP_softmax_backward, AH_T(r->grad_out[0]), AH_T(r->out[0]), ah_args(r, softmax)->dim))

void ah_backward_log_softmax(struct ah_rule *r)
{
    struct ah_value dim = ah_args(r, log_softmax)->dim;
    r->grad_in[0] = ah_r(r, AH_OP_log_softmax_backward, AH_T(r->grad_out[0]), AH_T(r->out[0]), dim);
}

static struct ah_tensor *sum_keep(struct ah_rule *r, struct ah_tensor *t, struct ah_value dim)
{
    return ah_r(r, AH_OP_sum, AH_T(t), AH_INTS_OF(&dim.integer, 1), AH_B(true));
}

/* z = y (g - sum(g y)) */
void ah_backward_softmax_backward(struct ah_rule *r)
{
    const struct ah_args_softmax_backward *arg = ah_args(r, softmax_backward);
    struct ah_tensor *gz = r->grad_out[0], *g = arg->grad.tensor, *y = arg->output.tensor;
    struct ah_value dim = arg->dim;
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_softmax_backward, AH_T(gz), AH_T(y), dim);
    if (r->needs[1]) {
        struct ah_tensor *centred = ah_r_sub(r, g, sum_keep(r, ah_r_mul(r, g, y), dim));
        struct ah_tensor *through_sum = ah_r_mul(r, g, sum_keep(r, ah_r_mul(r, gz, y), dim));
        r->grad_in[1] = ah_r_sub(r, ah_r_mul(r, gz, centred), through_sum);
    }
}

/* z = g - exp(y) sum(g) */
void ah_backward_log_softmax_backward(struct ah_rule *r)
{
    const struct ah_args_log_softmax_backward *arg = ah_args(r, log_softmax_backward);
    struct ah_tensor *gz = r->grad_out[0], *g = arg->grad.tensor, *y = arg->output.tensor;
    struct ah_value dim = arg->dim;
    struct ah_tensor *weighted = ah_r_mul(r, gz, ah_r(r, AH_OP_exp, AH_T(y)));
    if (r->needs[0])
        r->grad_in[0] = ah_r_sub(r, gz, sum_keep(r, weighted, dim));
    if (r->needs[1])
        r->grad_in[1] = ah_r_neg(r, ah_r_mul(r, weighted, sum_keep(r, g, dim)));
}
