/* Softmax and its logarithm: dim, dtype and the shapes of the adjoints; the kernels do the rest. */
#include "ops/rows.h"

int ah_forward_softmax(struct ah_call *c)
{
    const struct ah_tensor *x = c->arg[0].tensor;
    enum ah_dtype dtype = c->arg[2].kind == AH_NONE ? x->dtype : c->arg[2].dtype;
    int dim;
    AH_TRY(ah_wrap_dim(c->op->name, c->arg[1].integer, x->ndim, &dim));
    if (!ah_dtype_is_float(dtype)) {
        return ah_fail(AH_EINVAL, "%s: expected a floating input, got %s", c->op->name, ah_dtype_name(dtype));
    }
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, dtype));
    return ah_call_kernel(c);
}

int ah_forward_softmax_backward(struct ah_call *c)
{
    const struct ah_tensor *g = c->arg[0].tensor, *y = c->arg[1].tensor;
    int dim;
    AH_TRY(ah_wrap_dim(c->op->name, c->arg[2].integer, y->ndim, &dim));
    if (!ah_same_shape(g, y) || g->dtype != y->dtype) {
        return ah_fail(AH_EINVAL, "%s: expected a gradient %s %s, got %s %s", c->op->name, ah_dtype_name(y->dtype),
                       ah_shape(y), ah_dtype_name(g->dtype), ah_shape(g));
    }
    AH_TRY(ah_call_output(c, 0, y->size, y->ndim, y->dtype));
    return ah_call_kernel(c);
}
