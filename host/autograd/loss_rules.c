#include "autograd/graph.h"
#include "autograd/rule.h"
#include "ops/rows.h"

static struct ah_tensor *saved(const struct ah_rule *r, int i)
{
    return r->arg[i].kind == AH_TENSOR ? r->arg[i].tensor : NULL;
}

/* The loss is linear in its input, so this is its own adjoint's adjoint; state[0] is the sum of the weights. */
int ah_backward_class_nll(struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_class_nll_backward, AH_T(r->grad_out[0]), AH_T(saved(r, 1)), AH_T(saved(r, 2)),
                         AH_INTS_OF(meta->size, meta->ndim), r->arg[3], r->arg[4], r->arg[5], AH_N(r->state[0]));
    return r->status;
}

int ah_backward_class_nll_backward(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_class_nll, AH_T(r->grad_out[0]), AH_T(saved(r, 1)), AH_T(saved(r, 2)), r->arg[4],
                         r->arg[5], r->arg[6]);
    return r->status;
}

int ah_backward_cross_entropy_rows(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0], *x = saved(r, 0), *t = saved(r, 1), *w = saved(r, 2);
    if (!ah_grad_enabled) {
        r->grad_in[0] = ah_r(r, AH_OP_cross_entropy_rows_backward, AH_T(g), AH_T(x), AH_T(r->extra[0]), AH_T(t),
                             AH_T(w), r->arg[3], r->arg[4], r->arg[5], AH_N(r->state[0]));
        return r->status;
    }
    /* Higher derivatives are wanted: the same by ops that have them. */
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    struct ah_tensor *log_probability = ah_r(r, AH_OP_log_softmax, AH_T(x), AH_I(1));
    struct ah_tensor *inner = ah_r(r, AH_OP_class_nll_backward, AH_T(g), AH_T(t), AH_T(w),
                                   AH_INTS_OF(meta->size, meta->ndim), r->arg[3], r->arg[4], r->arg[5],
                                   AH_N(r->state[0]));
    r->grad_in[0] = ah_r(r, AH_OP_log_softmax_backward, AH_T(inner), AH_T(log_probability), AH_I(1));
    return r->status;
}
