#include "autograd/rule.h"
#include "ops/rows.h"

static struct ah_value size_of(const struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    return AH_INTS_OF(meta->size, meta->ndim);
}

int ah_backward_max_pool2d(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_max_pool2d_backward, AH_T(r->grad_out[0]), AH_T(r->extra[0]), size_of(r), r->arg[1],
                         r->arg[2], r->arg[3], r->arg[4], r->arg[5]);
    return r->status;
}

/* Averages are linear: the adjoint's adjoint is the average again. */

int ah_backward_avg_pool2d(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_avg_pool2d_backward, AH_T(r->grad_out[0]), size_of(r), r->arg[1], r->arg[2],
                         r->arg[3], r->arg[4], r->arg[5], r->arg[6]);
    return r->status;
}

int ah_backward_avg_pool2d_backward(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_avg_pool2d, AH_T(r->grad_out[0]), r->arg[2], r->arg[3], r->arg[4], r->arg[5],
                         r->arg[6], r->arg[7]);
    return r->status;
}

int ah_backward_adaptive_avg_pool2d(struct ah_rule *r)
{
    r->grad_in[0] =
        ah_r(r, AH_OP_adaptive_avg_pool2d_backward, AH_T(r->grad_out[0]), size_of(r), r->arg[1]);
    return r->status;
}

int ah_backward_adaptive_avg_pool2d_backward(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_adaptive_avg_pool2d, AH_T(r->grad_out[0]), r->arg[2]);
    return r->status;
}
