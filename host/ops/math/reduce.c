/* Reductions: the reduced dims become a bit mask in the state, which kernel and rule read; the output drops those dims
 * or keeps them as 1. Extremes of nothing are refused, sums of nothing are 0. */
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/math/renorm.h"
#include "tensor/owned.h"

/* The dims named by an argument (I? or i?) as a bit mask; absent or an empty table means all. */
static int dim_mask(const struct ah_call *c, const struct ah_value *dim, uint32_t *mask)
{
    const struct ah_tensor *input = ah_args(c, any)->input.tensor;
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
    const struct ah_tensor *input = ah_args(c, any)->input.tensor;
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
static int reduce_forward(struct ah_call *c, const struct ah_value *dim, bool keepdim, enum ah_dtype dtype)
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
    const struct ah_tensor *input = ah_args(c, amax)->input.tensor;
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
    const struct ah_args_sum *arg = ah_args(c, sum);
    if (arg->dtype.kind == AH_DTYPE)
        return arg->dtype.dtype;
    enum ah_dtype dtype = arg->input.tensor->dtype;
    return ah_dtype_is_float(dtype) ? dtype : AH_I64;
}

AH_FORWARD_WITH(sum, sum, reduce_forward(c, &arg->dim, arg->keepdim.flag, sum_dtype(c)))

int ah_forward_mean(struct ah_call *c)
{
    const struct ah_args_mean *arg = ah_args(c, mean);
    enum ah_dtype dtype = arg->dtype.kind == AH_DTYPE ? arg->dtype.dtype : arg->input.tensor->dtype;
    if (!ah_dtype_is_float(dtype))
        return ah_fail(AH_EINVAL, "mean: expected a floating input, got %s; convert it, or pass dtype = 'float32'",
                       ah_dtype_name(dtype));
    return reduce_forward(c, &arg->dim, arg->keepdim.flag, dtype);
}

int ah_forward_spread(struct ah_call *c)
{
    const struct ah_args_spread *arg = ah_args(c, spread);
    AH_TRY(ah_call_expect_float(c, 0));
    c->state.reduce.correction = arg->unbiased.flag ? arg->correction.number : 0;
    return reduce_forward(c, &arg->dim, arg->keepdim.flag, arg->input.tensor->dtype);
}

static int with_mean(struct ah_call *c, enum ah_opid op)
{
    const struct ah_args_std_mean *arg = ah_args(c, std_mean);
    AH_TRY(ah_op_call1(op, &c->out[0], c->arg, 5));
    AH_TRY(ah_op1(AH_OP_mean, &c->out[1], arg->input, arg->dim, arg->keepdim));
    c->out_count = 2;
    return 0;
}

AH_FORWARD(var_mean, with_mean(c, AH_OP_var))
AH_FORWARD(std_mean, with_mean(c, AH_OP_std))

int ah_forward_norm(struct ah_call *c)
{
    const struct ah_args_norm *arg = ah_args(c, norm);
    AH_TRY(ah_call_expect_float(c, 0));
    return reduce_forward(c, &arg->dim, arg->keepdim.flag, arg->input.tensor->dtype);
}

/* As its kernel: the norms in the dtype that is computed in, their factors rounded to the input's. */
static int renorm_by_ops(struct ah_call *c, struct ah_value others)
{
    const struct ah_args_renorm *arg = ah_args(c, renorm);
    const struct ah_tensor *x = arg->input.tensor;
    AH_OWNED_LIST(made, 8);
    struct ah_value own = arg->input; /* in place: of the values before */
    int n = 0;
    c->recording = false;
    if (c->inplace) {
        AH_TRY(ah_op1(AH_OP_clone, &made[7], own));
        own = AH_T(made[7]);
    }
    AH_TRY(ah_op1(AH_OP_to, &made[n++], own, AH_D(ah_compute_dtype(x->dtype))));
    AH_TRY(ah_op1(AH_OP_norm, &made[n++], AH_T(made[0]), arg->p, others, AH_B(true)));
    AH_TRY(ah_op1(AH_OP_gt, &made[n++], AH_T(made[1]), arg->maxnorm));
    AH_TRY(ah_op1(AH_OP_add, &made[n++], AH_T(made[1]), AH_N(AH_RENORM_EPS)));
    AH_TRY(ah_op1(AH_OP_div, &made[n++], arg->maxnorm, AH_T(made[3])));
    AH_TRY(ah_op1(AH_OP_where, &made[n++], AH_T(made[2]), AH_T(made[4]), AH_N(1)));
    AH_TRY(ah_op1(AH_OP_to, &made[n++], AH_T(made[5]), AH_D(x->dtype)));
    const struct ah_value args[] = {arg->input, AH_T(made[6])};
    ah_tensor_release(c->out[0]); /* in place: the product's again */
    c->out[0] = NULL;
    return ah_op_call(AH_OP_mul, args, 2, c->inplace, c->out, &c->out_count);
}

int ah_forward_renorm(struct ah_call *c)
{
    const struct ah_args_renorm *arg = ah_args(c, renorm);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t others[AH_MAX_DIMS];
    int dim, count = 0;
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim < 2)
        return ah_fail(AH_EINVAL, "renorm: input: expected at least 2 dims, got shape %s", ah_shape(x));
    if (!(arg->p.number > 0))
        return ah_fail(AH_EINVAL, "renorm: p: expected a number above 0, got %g", arg->p.number);
    if (!(arg->maxnorm.number >= 0))
        return ah_fail(AH_EINVAL, "renorm: maxnorm: expected a number of at least 0, got %g", arg->maxnorm.number);
    AH_TRY(ah_wrap_dim("renorm", arg->dim.integer, x->ndim, &dim));
    for (int d = 0; d < x->ndim; d++)
        if (d != dim)
            others[count++] = d;
    c->state.reduce.dims = ((1u << x->ndim) - 1) & ~(1u << dim);
    if (c->device != &ah_cpu)
        return renorm_by_ops(c, AH_INTS_OF(others, count));
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}

int ah_forward_logsumexp(struct ah_call *c)
{
    const struct ah_args_logsumexp *arg = ah_args(c, logsumexp);
    enum ah_dtype dtype = arg->input.tensor->dtype;
    return reduce_forward(c, &arg->dim, arg->keepdim.flag, ah_dtype_is_float(dtype) ? dtype : ah_default_dtype);
}

int ah_forward_amax(struct ah_call *c)
{
    const struct ah_args_amax *arg = ah_args(c, amax);
    AH_TRY(expect_elements(c, &arg->dim));
    return reduce_forward(c, &arg->dim, arg->keepdim.flag, arg->input.tensor->dtype);
}

/* Without dim one value, whose ties share the gradient; with dim values and indices; with a tensor in its place the
 * larger (smaller) of each pair. */
static int reduce_extreme(struct ah_call *c, enum ah_opid whole, enum ah_opid along, enum ah_opid pairs)
{
    const struct ah_args_max *arg = ah_args(c, max);
    const struct ah_tensor *dim = arg->dim.tensor;
    if (arg->dim.kind == AH_NONE) {
        c->out_count = 1;
        return ah_op1(whole, &c->out[0], arg->input);
    }
    c->out_count = 1;
    if (!dim->wrapped && c->arg[2].flag)
        return ah_fail(AH_EINVAL, "%s: of two tensors there is no dim to keep (keepdim = true)", c->op->name);
    if (!dim->wrapped)
        return ah_op1(pairs, &c->out[0], arg->input, arg->dim);
    if (dim->dtype != AH_I64)
        return ah_fail(AH_EINVAL, "%s: dim: expected an integer or a tensor", c->op->name);
    const struct ah_value args[] = {arg->input, AH_I(ah_tensor_get_int(dim, 0)), arg->keepdim};
    return ah_op_call(along, args, 3, false, c->out, &c->out_count);
}

AH_FORWARD(max, reduce_extreme(c, AH_OP_amax, AH_OP_max_dim, AH_OP_maximum))
AH_FORWARD(min, reduce_extreme(c, AH_OP_amin, AH_OP_min_dim, AH_OP_minimum))

int ah_forward_extreme_along(struct ah_call *c)
{
    const struct ah_args_extreme_along *arg = ah_args(c, extreme_along);
    uint32_t mask;
    AH_TRY(expect_elements(c, &arg->dim));
    AH_TRY(dim_mask(c, &arg->dim, &mask));
    c->state.reduce.dims = mask;
    AH_TRY(reduced_output(c, 0, mask, arg->keepdim.flag, arg->input.tensor->dtype));
    AH_TRY(reduced_output(c, 1, mask, arg->keepdim.flag, AH_I64));
    return ah_call_kernel(c);
}

int ah_forward_argmax(struct ah_call *c)
{
    const struct ah_args_argmax *arg = ah_args(c, argmax);
    AH_TRY(expect_elements(c, &arg->dim));
    return reduce_forward(c, &arg->dim, arg->keepdim.flag, AH_I64);
}

/* bool, except that uint8 stays uint8, as in PyTorch. */
AH_FORWARD_WITH(any, any,
                reduce_forward(c, &arg->dim, arg->keepdim.flag, arg->input.tensor->dtype == AH_U8 ? AH_U8 : AH_BOOL))
AH_FORWARD(count_nonzero, reduce_forward(c, &ah_args(c, count_nonzero)->dim, false, AH_I64))

static int reduce_running(struct ah_call *c, enum ah_dtype dtype)
{
    const struct ah_args_cumsum *arg = ah_args(c, cumsum);
    const struct ah_tensor *input = arg->input.tensor;
    int dim;
    AH_TRY(ah_wrap_dim(c->op->name, arg->dim.integer, input->ndim, &dim));
    c->state.reduce.dims = input->ndim > 0 ? 1u << dim : 0;
    return ah_call_single(c, input->size, input->ndim, dtype);
}

int ah_forward_cumsum(struct ah_call *c)
{
    const struct ah_args_cumsum *arg = ah_args(c, cumsum);
    enum ah_dtype dtype = arg->input.tensor->dtype;
    if (arg->dtype.kind == AH_DTYPE)
        dtype = arg->dtype.dtype;
    else if (!ah_dtype_is_float(dtype))
        dtype = AH_I64;
    return reduce_running(c, dtype);
}

int ah_forward_logcumsumexp(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    return reduce_running(c, ah_args(c, logcumsumexp)->input.tensor->dtype);
}

int ah_forward_cumextreme(struct ah_call *c)
{
    const struct ah_tensor *input = ah_args(c, cumextreme)->input.tensor;
    AH_TRY(ah_call_output(c, 1, input->size, input->ndim, AH_I64));
    return reduce_running(c, input->dtype);
}

AH_FORWARD(cumsum_reverse, reduce_running(c, ah_args(c, cumsum_reverse)->input.tensor->dtype))

/* Undo broadcasting: sum over the dims that `size` lacks or has as 1. */
int ah_forward_sum_to(struct ah_call *c)
{
    const struct ah_args_sum_to *arg = ah_args(c, sum_to);
    const struct ah_tensor *input = arg->input.tensor;
    const int64_t *size = arg->size.ints.at;
    int ndim = arg->size.ints.count, lead = input->ndim - ndim;
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
        c->out[0] = ah_tensor_retain(arg->input.tensor);
        c->out_count = 1;
        return 0;
    }
    c->state.reduce.dims = mask;
    return ah_call_single(c, size, ndim, input->dtype);
}

int ah_forward_prod_others(struct ah_call *c)
{
    const struct ah_args_prod_others *arg = ah_args(c, prod_others);
    const struct ah_tensor *input = arg->input.tensor;
    uint32_t mask;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(dim_mask(c, &arg->dim, &mask));
    c->state.reduce.dims = mask;
    return ah_call_single(c, input->size, input->ndim, input->dtype);
}
