/* Padding: `before` and `after` have a number for each dim, of places that are added (or, below 0, cut off) at its two
 * ends. nn/functional/pad.lua checks the numbers. */
#include "ops/dispatch/rows.h"

static int pad_forward(struct ah_call *c, const struct ah_value *before, const struct ah_value *after)
{
    const struct ah_tensor *x = c->arg[0].tensor;
    int64_t size[AH_MAX_DIMS];
    if (before->ints.count != x->ndim || after->ints.count != x->ndim)
        return ah_fail(AH_EINVAL, "%s: expected two numbers for each dim of %s", c->op->name, ah_shape(x));
    for (int d = 0; d < x->ndim; d++) {
        if (__builtin_add_overflow(x->size[d], before->ints.at[d], &size[d]) ||
            __builtin_add_overflow(size[d], after->ints.at[d], &size[d]) || size[d] < 0)
            return ah_fail(AH_EINVAL, "pad: %lld and %lld do not fit dim %d of size %lld",
                           (long long)before->ints.at[d], (long long)after->ints.at[d], d, (long long)x->size[d]);
    }
    return ah_call_single(c, size, x->ndim, x->dtype);
}

int ah_forward_constant_pad(struct ah_call *c)
{
    const struct ah_args_constant_pad *arg = ah_args(c, constant_pad);
    const struct ah_tensor *x = arg->input.tensor;
    for (int d = 0; d < x->ndim && d < arg->before.ints.count && d < arg->after.ints.count; d++) {
        int64_t before = arg->before.ints.at[d], after = arg->after.ints.at[d];
        if ((before < 0 ? before : 0) + (after < 0 ? after : 0) < -x->size[d])
            return ah_fail(AH_EINVAL, "pad: %lld and %lld cut more than dim %d of size %lld has", (long long)before,
                           (long long)after, d, (long long)x->size[d]);
    }
    return pad_forward(c, &arg->before, &arg->after);
}

AH_FORWARD_WITH(edge_pad, edge_pad, pad_forward(c, &arg->before, &arg->after))
AH_FORWARD_WITH(edge_pad_backward, edge_pad_backward,
                ah_call_single(c, arg->size.ints.at, arg->size.ints.count, arg->grad.tensor->dtype))
