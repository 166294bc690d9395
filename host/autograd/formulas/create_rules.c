/* Triangles: linear, and their own adjoints. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

int ah_backward_triangle(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, r->node->op->id, AH_T(r->grad_out[0]), AH_I(ah_args(r, triangle)->diagonal.integer));
    return r->status;
}
