/* Rules of padding. Each is linear: with constants the adjoint cuts off the edges, with edges it adds the gradients of
 * a place's copies to the place. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

void ah_backward_constant_pad(struct ah_rule *r)
{
    const struct ah_args_constant_pad *arg = ah_args(r, constant_pad);
    int64_t before[AH_MAX_DIMS], after[AH_MAX_DIMS];
    int count = arg->before.ints.count;
    for (int d = 0; d < count; d++) {
        before[d] = -arg->before.ints.at[d];
        after[d] = -arg->after.ints.at[d];
    }
    ah_r_give(r, 0, ah_r(r, AH_OP_constant_pad, AH_T(r->grad_out[0]), AH_INTS_OF(before, count),
                         AH_INTS_OF(after, count), AH_N(0)));
}

void ah_backward_edge_pad(struct ah_rule *r)
{
    const struct ah_args_edge_pad *arg = ah_args(r, edge_pad);
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    ah_r_give(r, 0, ah_r(r, AH_OP_edge_pad_backward, AH_T(r->grad_out[0]), AH_INTS_OF(input->size, input->ndim),
                         arg->before, arg->after, arg->mode));
}

AH_BACKWARD_WITH(edge_pad_backward, edge_pad_backward,
                 ah_r_give(r, 0, ah_r(r, AH_OP_edge_pad, AH_T(r->grad_out[0]), arg->before, arg->after, arg->mode)))
