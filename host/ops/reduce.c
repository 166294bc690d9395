/* Reductions: the reduced dims become a bit mask in the state, which kernel and rule read; the output drops those dims
 * or keeps them as 1. Extremes of nothing are refused, sums of nothing are 0. */
#include <math.h>
#include <string.h>

#include "ops/rows.h"

/* The dims named by an argument (I? or i?) as a bit mask; absent or an empty table means all. */
static int dim_mask(const struct ah_call *c, const struct ah_value *dim, uint32_t *mask)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    int count = dim->kind == AH_INT ? 1 : dim->kind == AH_INTS ? dim->ints.count : 0;
    *mask = 0;
    for (int i = 0; i < count; i++) {
        int d;
        AH_TRY(ah_wrap_dim(c->op->name, dim->kind == AH_INT ? dim->integer : dim->ints.at[i], input->ndim, &d));
        if (*mask >> d & 1)
            return ah_fail(AH_EINVAL, "%s: dim %d is named twice", c->op->name, d);
        *mask |= 1u << d;
    }
    if (count == 0)
        *mask = (1u << input->ndim) - 1;
    return 0;
}

static int reduced_output(struct ah_call *c, int index, uint32_t mask, bool keepdim, enum ah_dtype dtype)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    int64_t size[AH_MAX_DIMS];
    int ndim = 0;
    for (int d = 0; d < input->ndim; d++) {
        if (!(mask >> d & 1))
            size[ndim++] = input->size[d];
        else if (keepdim)
            size[ndim++] = 1;
    }
    return ah_call_output(c, index, size, ndim, dtype);
}

/* Mask into the state, output, kernel. */
static int reduce(struct ah_call *c, const struct ah_value *dim, bool keepdim, enum ah_dtype dtype)
{
    uint32_t mask;
    AH_TRY(dim_mask(c, dim, &mask));
    c->state.reduce.dims = mask;
    AH_TRY(reduced_output(c, 0, mask, keepdim, dtype));
    return ah_call_kernel(c);
}

/* Extremes of nothing do not exist. */
static int expect_elements(const struct ah_call *c, const struct ah_value *dim)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    uint32_t mask;
    AH_TRY(dim_mask(c, dim, &mask));
    for (int d = 0; d < input->ndim; d++)
        if ((mask >> d & 1) && input->size[d] == 0)
            return ah_fail(AH_EINVAL, "%s: there is nothing to compare along dim %d of shape %s", c->op->name, d,
                           ah_shape(input));
    return 0;
}

static enum ah_dtype sum_dtype(const struct ah_call *c)
{
    if (c->arg[3].kind == AH_DTYPE)
        return c->arg[3].dtype;
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    return ah_dtype_is_float(dtype) ? dtype : AH_I64;
}

int ah_forward_sum(struct ah_call *c)
{
    return reduce(c, &c->arg[1], c->arg[2].flag, sum_dtype(c));
}

int ah_forward_mean(struct ah_call *c)
{
    enum ah_dtype dtype = c->arg[3].kind == AH_DTYPE ? c->arg[3].dtype : c->arg[0].tensor->dtype;
    if (!ah_dtype_is_float(dtype))
        return ah_fail(AH_EINVAL, "mean: expected a floating input, got %s; convert it, or pass dtype = 'float32'",
                       ah_dtype_name(dtype));
    return reduce(c, &c->arg[1], c->arg[2].flag, dtype);
}

int ah_forward_spread(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    c->state.reduce.correction = c->arg[4].flag ? c->arg[2].number : 0;
    return reduce(c, &c->arg[1], c->arg[3].flag, c->arg[0].tensor->dtype);
}

static int with_mean(struct ah_call *c, enum ah_opid op)
{
    AH_TRY(ah_op_call1(op, &c->out[0], c->arg, 5));
    AH_TRY(ah_op1(AH_OP_mean, &c->out[1], c->arg[0], c->arg[1], c->arg[3]));
    c->out_count = 2;
    return 0;
}

int ah_forward_var_mean(struct ah_call *c)
{
    return with_mean(c, AH_OP_var);
}

int ah_forward_std_mean(struct ah_call *c)
{
    return with_mean(c, AH_OP_std);
}

int ah_forward_norm(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    return reduce(c, &c->arg[2], c->arg[3].flag, c->arg[0].tensor->dtype);
}

int ah_forward_logsumexp(struct ah_call *c)
{
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    return reduce(c, &c->arg[1], c->arg[2].flag, ah_dtype_is_float(dtype) ? dtype : AH_F32);
}

int ah_forward_amax(struct ah_call *c)
{
    AH_TRY(expect_elements(c, &c->arg[1]));
    return reduce(c, &c->arg[1], c->arg[2].flag, c->arg[0].tensor->dtype);
}

/* Without dim one value, whose ties share the gradient; with dim values and indices; with a tensor in its place the
 * larger (smaller) of each pair. */
static int extreme(struct ah_call *c, enum ah_opid whole, enum ah_opid along, enum ah_opid pairs)
{
    const struct ah_tensor *dim = c->arg[1].tensor;
    if (c->arg[1].kind == AH_NONE) {
        c->out_count = 1;
        return ah_op1(whole, &c->out[0], c->arg[0]);
    }
    c->out_count = 1;
    if (!dim->wrapped)
        return ah_op1(pairs, &c->out[0], c->arg[0], c->arg[1]);
    if (dim->dtype != AH_I64)
        return ah_fail(AH_EINVAL, "%s: dim: expected an integer or a tensor", c->op->name);
    const struct ah_value args[] = {c->arg[0], AH_I(ah_tensor_get_int(dim, 0)), c->arg[2]};
    return ah_op_call(along, args, 3, false, c->out, &c->out_count);
}

int ah_forward_max(struct ah_call *c)
{
    return extreme(c, AH_OP_amax, AH_OP_max_dim, AH_OP_maximum);
}

int ah_forward_min(struct ah_call *c)
{
    return extreme(c, AH_OP_amin, AH_OP_min_dim, AH_OP_minimum);
}

int ah_forward_extreme_along(struct ah_call *c)
{
    uint32_t mask;
    AH_TRY(expect_elements(c, &c->arg[1]));
    AH_TRY(dim_mask(c, &c->arg[1], &mask));
    c->state.reduce.dims = mask;
    AH_TRY(reduced_output(c, 0, mask, c->arg[2].flag, c->arg[0].tensor->dtype));
    AH_TRY(reduced_output(c, 1, mask, c->arg[2].flag, AH_I64));
    return ah_call_kernel(c);
}

int ah_forward_argmax(struct ah_call *c)
{
    AH_TRY(expect_elements(c, &c->arg[1]));
    return reduce(c, &c->arg[1], c->arg[2].flag, AH_I64);
}

/* bool, except that uint8 stays uint8, as in PyTorch. */
int ah_forward_any(struct ah_call *c)
{
    return reduce(c, &c->arg[1], c->arg[2].flag, c->arg[0].tensor->dtype == AH_U8 ? AH_U8 : AH_BOOL);
}

int ah_forward_count_nonzero(struct ah_call *c)
{
    return reduce(c, &c->arg[1], false, AH_I64);
}

static int running(struct ah_call *c, enum ah_dtype dtype)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    int dim;
    AH_TRY(ah_wrap_dim(c->op->name, c->arg[1].integer, input->ndim, &dim));
    c->state.reduce.dims = input->ndim > 0 ? 1u << dim : 0;
    AH_TRY(ah_call_output(c, 0, input->size, input->ndim, dtype));
    return ah_call_kernel(c);
}

int ah_forward_cumsum(struct ah_call *c)
{
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    if (c->arg[2].kind == AH_DTYPE)
        dtype = c->arg[2].dtype;
    else if (!ah_dtype_is_float(dtype))
        dtype = AH_I64;
    return running(c, dtype);
}

int ah_forward_cumsum_reverse(struct ah_call *c)
{
    return running(c, c->arg[0].tensor->dtype);
}

/* Undo broadcasting: sum over the dims that `size` lacks or has as 1. */
int ah_forward_sum_to(struct ah_call *c)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    const int64_t *size = c->arg[1].ints.at;
    int ndim = c->arg[1].ints.count, lead = input->ndim - ndim;
    uint32_t mask = 0;
    bool fits = lead >= 0;
    for (int d = 0; fits && d < input->ndim; d++) {
        if (d < lead || (size[d - lead] == 1 && input->size[d] != 1))
            mask |= 1u << d;
        else
            fits = size[d - lead] == input->size[d];
    }
    if (!fits)
        return ah_fail(AH_EINVAL, "sum_to: %s is not a broadcast of %s", ah_shape(input), ah_shape_text(size, ndim));
    if (!mask) {
        c->recording = false;
        c->out[0] = ah_tensor_retain(c->arg[0].tensor);
        c->out_count = 1;
        return 0;
    }
    c->state.reduce.dims = mask;
    AH_TRY(ah_call_output(c, 0, size, ndim, input->dtype));
    return ah_call_kernel(c);
}

int ah_forward_prod_others(struct ah_call *c)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    uint32_t mask;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(dim_mask(c, &c->arg[1], &mask));
    c->state.reduce.dims = mask;
    AH_TRY(ah_call_output(c, 0, input->size, input->ndim, input->dtype));
    return ah_call_kernel(c);
}
