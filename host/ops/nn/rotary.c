/* Rotary position embeddings. */
#include "ops/dispatch/op.h"
#include "ops/dispatch/rows.h"

static bool rotary_fits(const struct ah_tensor *angles, const struct ah_tensor *x, enum ah_dtype dtype)
{
    bool fits = angles->dtype == dtype && angles->ndim >= 1 && angles->ndim <= x->ndim &&
                angles->size[angles->ndim - 1] == x->size[x->ndim - 1];
    for (int d = 0; fits && d < angles->ndim; d++) {
        int64_t size = angles->size[angles->ndim - 1 - d];
        fits = size == 1 || size == x->size[x->ndim - 1 - d];
    }
    return fits;
}

int ah_forward_rotary(struct ah_call *c)
{
    const struct ah_args_rotary *arg = ah_args(c, rotary);
    const struct ah_tensor *x = arg->input.tensor, *cos = arg->cos.tensor, *sin = arg->sin.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim < 1 || x->size[x->ndim - 1] % 2)
        return ah_fail(AH_EINVAL, "rotary: expected an input with an even last dim, got %s", ah_shape(x));
    enum ah_dtype dtype = ah_compute_dtype(x->dtype);
    if (!rotary_fits(cos, x, dtype) || !rotary_fits(sin, x, dtype))
        return ah_fail(AH_EINVAL, "rotary: expected %s cos and sin that broadcast to the input's %s, got %s %s and %s "
                       "%s", ah_dtype_name(dtype), ah_shape(x), ah_dtype_name(cos->dtype), ah_shape(cos),
                       ah_dtype_name(sin->dtype), ah_shape(sin));
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}
