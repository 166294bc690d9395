/* Distances of all pairs of rows i < j of (n, width), in the order (0, 1), (0, 2), ... */
#include "ops/dispatch/op.h"
#include "ops/dispatch/rows.h"

int ah_forward_pair_distances(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, pair_distances)->input.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim != 2)
        return ah_fail(AH_EINVAL, "pdist: expected an input (N, D), got %s", ah_shape(x));
    int64_t pairs = x->size[0] * (x->size[0] - 1) / 2;
    return ah_call_single(c, &pairs, 1, x->dtype);
}

int ah_forward_pair_distances_backward(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, pair_distances_backward)->input.tensor;
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}
