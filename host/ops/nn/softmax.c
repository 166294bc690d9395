/* Softmax and its logarithm: dim, dtype and the shapes of the adjoints; the kernels do the rest. */
#include "ops/dispatch/rows.h"

int ah_forward_softmax(struct ah_call *c)
{
    const struct ah_args_softmax *arg = ah_args(c, softmax);
    const struct ah_tensor *x = arg->input.tensor;
    enum ah_dtype dtype = arg->dtype.kind == AH_NONE ? x->dtype : arg->dtype.dtype;
    int dim;
    AH_TRY(ah_wrap_dim(c->op->name, arg->dim.integer, x->ndim, &dim));
    if (!ah_dtype_is_float(dtype)) {
        return ah_fail(AH_EINVAL, "%s: expected a floating input, got %s", c->op->name, ah_dtype_name(dtype));
    }
    return ah_call_single(c, x->size, x->ndim, dtype);
}

int ah_forward_softmax_backward(struct ah_call *c)
{
    const struct ah_args_softmax_backward *arg = ah_args(c, softmax_backward);
    const struct ah_tensor *g = arg->grad.tensor, *y = arg->output.tensor;
    int dim;
    AH_TRY(ah_wrap_dim(c->op->name, arg->dim.integer, y->ndim, &dim));
    if (!ah_same_shape(g, y) || g->dtype != y->dtype) {
        return ah_fail(AH_EINVAL, "%s: expected a gradient %s %s, got %s %s", c->op->name, ah_dtype_name(y->dtype),
                       ah_shape(y), ah_dtype_name(g->dtype), ah_shape(g));
    }
    return ah_call_single(c, y->size, y->ndim, y->dtype);
}
