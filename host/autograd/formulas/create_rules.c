/* Triangles: linear, and their own adjoints. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

AH_GRADIENT(triangle, ah_r(r, r->node->op->id, AH_T(r->grad_out[0]), AH_I(ah_args(r, triangle)->diagonal.integer)))
