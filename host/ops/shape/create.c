/* Making tensors: shape and dtype of constants, sequences, triangles and random rows, and the range checks of their
 * numbers. Kernels only fill: wrong arguments are refused here. */
#include <math.h>
#include <string.h>

#include "ops/dispatch/rows.h"

/* Most rows: an output of the given shape and dtype, filled by the kernel. */
static int create_make(struct ah_call *c, const struct ah_value *size, const struct ah_value *dtype)
{
    return ah_call_single(c, size->ints.at, size->ints.count, dtype->dtype);
}

static int make_like(struct ah_call *c, const struct ah_value *dtype)
{
    struct ah_args_full_like *arg = ah_args(c, full_like);
    const struct ah_tensor *like = arg->input.tensor;
    AH_TRY(ah_call_output(c, 0, like->size, like->ndim, dtype->kind == AH_DTYPE ? dtype->dtype : like->dtype));
    arg->input = AH_NIL; /* it lent its shape; it may be on another device */
    return ah_call_kernel(c);
}

static int expect_float_output(const struct ah_call *c, enum ah_dtype dtype)
{
    if (ah_dtype_is_float(dtype))
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected a floating dtype, got %s", c->op->name, ah_dtype_name(dtype));
}

AH_FORWARD_WITH(empty, empty, ah_call_output(c, 0, arg->size.ints.at, arg->size.ints.count, arg->dtype.dtype))
AH_FORWARD_WITH(filled, filled, create_make(c, &arg->size, &arg->dtype))
AH_FORWARD(filled_like, make_like(c, &ah_args(c, filled_like)->dtype))

int ah_forward_full(struct ah_call *c)
{
    const struct ah_args_full *arg = ah_args(c, full);
    AH_TRY(ah_call_expect_fits(c, 1, arg->dtype.dtype));
    return create_make(c, &c->arg[0], &arg->dtype);
}

int ah_forward_empty_like(struct ah_call *c)
{
    const struct ah_args_empty_like *arg = ah_args(c, empty_like);
    const struct ah_tensor *like = arg->input.tensor;
    return ah_call_output(c, 0, like->size, like->ndim, arg->dtype.kind == AH_DTYPE ? arg->dtype.dtype : like->dtype);
}

int ah_forward_full_like(struct ah_call *c)
{
    const struct ah_args_full_like *arg = ah_args(c, full_like);
    enum ah_dtype dtype = arg->dtype.kind == AH_DTYPE ? arg->dtype.dtype : arg->input.tensor->dtype;
    AH_TRY(ah_call_expect_fits(c, 1, dtype));
    return make_like(c, &arg->dtype);
}

int ah_forward_rand_like(struct ah_call *c)
{
    struct ah_args_rand_like *arg = ah_args(c, rand_like);
    enum ah_dtype dtype = arg->dtype.kind == AH_DTYPE ? arg->dtype.dtype : arg->input.tensor->dtype;
    AH_TRY(expect_float_output(c, dtype));
    AH_TRY(ah_tensor_empty_ordered(&c->out[0], arg->input.tensor, dtype, c->device));
    c->out_count = 1;
    arg->input = AH_NIL; /* it lent its shape; it may be on another device */
    return ah_call_kernel(c);
}

int ah_forward_rand(struct ah_call *c)
{
    const struct ah_args_rand *arg = ah_args(c, rand);
    AH_TRY(expect_float_output(c, arg->dtype.dtype));
    return create_make(c, &c->arg[0], &arg->dtype);
}

/* A bound or step of a sequence: in integers its fraction is cut, as in PyTorch. */
static double sequence_number(double value, enum ah_dtype dtype)
{
    return ah_dtype_category(dtype) == AH_CATEGORY_INT ? trunc(value) : value;
}

/* One number is the end, as in PyTorch. Kept for the kernel: state = start, step. */
int ah_forward_arange(struct ah_call *c)
{
    const struct ah_args_arange *arg = ah_args(c, arange);
    bool one = arg->end_.kind == AH_NONE;
    double start = one ? 0 : arg->start.number, end = one ? arg->start.number : arg->end_.number;
    double step = arg->step.number;
    if (step == 0 || !isfinite(start) || !isfinite(end) || !isfinite(step))
        return ah_fail(AH_EINVAL, "arange: expected finite bounds and a step other than 0, got %g, %g, %g", start, end,
                       step);
    if ((end - start) * step < 0)
        return ah_fail(AH_EINVAL, "arange: a step of %g does not lead from %g to %g", step, start, end);
    enum ah_dtype dtype = ah_default_dtype;
    if (arg->dtype.kind == AH_DTYPE)
        dtype = arg->dtype.dtype;
    else if (start == floor(start) && end == floor(end) && step == floor(step))
        dtype = AH_I64;
    double count = ceil((end - start) / step);
    if (count > 0x1p53)
        return ah_fail(AH_EINVAL, "arange: %g elements are too many", count);
    c->state.sequence.start = sequence_number(start, dtype);
    c->state.sequence.step = sequence_number(step, dtype);
    return ah_call_single(c, (int64_t[]){(int64_t)count}, 1, dtype);
}

int ah_forward_linspace(struct ah_call *c)
{
    struct ah_args_linspace *arg = ah_args(c, linspace);
    int64_t steps = arg->steps.integer;
    if (steps < 0)
        return ah_fail(AH_EINVAL, "linspace: expected steps of 0 or more, got %lld", (long long)steps);
    arg->start.number = sequence_number(arg->start.number, arg->dtype.dtype);
    arg->end_.number = sequence_number(arg->end_.number, arg->dtype.dtype);
    return ah_call_single(c, &steps, 1, arg->dtype.dtype);
}

int ah_forward_eye(struct ah_call *c)
{
    const struct ah_args_eye *arg = ah_args(c, eye);
    int64_t n = arg->n.integer, size[2] = {n, arg->m.kind == AH_INT ? arg->m.integer : n};
    return ah_call_single(c, size, 2, arg->dtype.dtype);
}

int ah_forward_triangle(struct ah_call *c)
{
    const struct ah_tensor *input = ah_args(c, triangle)->input.tensor;
    if (input->ndim < 2)
        return ah_fail(AH_EINVAL, "%s: expected at least 2 dims, got shape %s", c->op->name, ah_shape(input));
    return ah_call_single(c, input->size, input->ndim, input->dtype);
}

/* One more than the largest class; that none is negative or too large is the kernel's to see. */
static int count_classes(struct ah_tensor *input, int64_t *classes)
{
    struct ah_tensor *most = NULL, *here = NULL;
    int64_t largest = -1;
    int status = input->numel ? ah_op1(AH_OP_amax, &most, AH_T(input)) : 0;
    if (most)
        status = ah_host_copy(&here, most);
    if (here)
        largest = ah_tensor_get_int(here, 0);
    ah_tensor_release(most);
    ah_tensor_release(here);
    AH_TRY(status);
    if (largest == INT64_MAX)
        return ah_fail(AH_EINVAL, "one_hot: class %lld is too large", (long long)largest);
    if (largest < 0)
        return ah_fail(AH_EINVAL, "one_hot: cannot infer num_classes from %s",
                       input->numel ? "negative classes" : "an empty input");
    *classes = largest + 1;
    return 0;
}

int ah_forward_one_hot(struct ah_call *c)
{
    const struct ah_args_one_hot *arg = ah_args(c, one_hot);
    const struct ah_tensor *input = arg->input.tensor;
    int64_t classes = arg->num_classes.integer, size[AH_MAX_DIMS];
    if (ah_dtype_category(input->dtype) != AH_CATEGORY_INT)
        return ah_fail(AH_EINVAL, "one_hot: expected an integer input, got %s", ah_dtype_name(input->dtype));
    if (input->ndim == AH_MAX_DIMS)
        return ah_fail(AH_EINVAL, "one_hot: the result would have %d dims", AH_MAX_DIMS + 1);
    if (classes < 0)
        AH_TRY(count_classes(arg->input.tensor, &classes));
    memcpy(size, input->size, sizeof size);
    size[input->ndim] = classes;
    return ah_call_single(c, size, input->ndim + 1, AH_I64);
}

/* Whole numbers low..high-1 must be within the dtype's range. */
static int expect_range(const struct ah_call *c, int64_t low, int64_t high, enum ah_dtype dtype)
{
    int64_t least = -65504, most = 65504; /* of float16; the other floats hold every int64 */
    if ((!ah_dtype_int_range(dtype, &least, &most) && dtype != AH_F16) || (low >= least && high - 1 <= most))
        return 0;
    return ah_fail(AH_EINVAL, "%s: %lld..%lld exceeds the range of %s", c->op->name, (long long)low,
                   (long long)high - 1, ah_dtype_name(dtype));
}

int ah_forward_randint(struct ah_call *c)
{
    const struct ah_args_randint *arg = ah_args(c, randint);
    if (arg->high.integer <= arg->low.integer)
        return ah_fail(AH_EINVAL, "randint: expected low < high, got %lld and %lld", (long long)arg->low.integer,
                       (long long)arg->high.integer);
    AH_TRY(expect_range(c, arg->low.integer, arg->high.integer, arg->dtype.dtype));
    return create_make(c, &arg->size, &arg->dtype);
}

int ah_forward_randperm(struct ah_call *c)
{
    const struct ah_args_randperm *arg = ah_args(c, randperm);
    int64_t n = arg->n.integer;
    if (n < 0)
        return ah_fail(AH_EINVAL, "randperm: expected n of 0 or more, got %lld", (long long)n);
    return ah_call_single(c, &n, 1, arg->dtype.dtype);
}

int ah_forward_bernoulli(struct ah_call *c)
{
    const struct ah_tensor *input = ah_args(c, bernoulli)->input.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    return ah_call_single(c, input->size, input->ndim, input->dtype);
}

int ah_forward_multinomial(struct ah_call *c)
{
    const struct ah_args_multinomial *arg = ah_args(c, multinomial);
    const struct ah_tensor *input = arg->input.tensor;
    int64_t samples = arg->num_samples.integer;
    AH_TRY(ah_call_expect_float(c, 0));
    if (input->ndim < 1 || input->ndim > 2)
        return ah_fail(AH_EINVAL, "multinomial: expected 1 or 2 dims, got shape %s", ah_shape(input));
    int64_t classes = input->size[input->ndim - 1];
    if (samples <= 0 || classes == 0 || (!arg->replacement.flag && samples > classes))
        return ah_fail(AH_EINVAL, "multinomial: cannot draw %lld samples %s replacement from %lld classes",
                       (long long)samples, arg->replacement.flag ? "with" : "without", (long long)classes);
    int64_t size[2] = {input->size[0], samples};
    return ah_call_single(c, input->ndim == 1 ? &size[1] : size, input->ndim, AH_I64);
}

int ah_forward_uniform_(struct ah_call *c)
{
    const struct ah_args_uniform_ *arg = ah_args(c, uniform_);
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(arg->from.number <= arg->to.number))
        return ah_fail(AH_EINVAL, "uniform_: expected from <= to, got %g and %g", arg->from.number, arg->to.number);
    return ah_call_kernel(c);
}

int ah_forward_normal_(struct ah_call *c)
{
    const struct ah_args_normal_ *arg = ah_args(c, normal_);
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(arg->std.number >= 0))
        return ah_fail(AH_EINVAL, "normal_: expected std of 0 or more, got %g", arg->std.number);
    return ah_call_kernel(c);
}

int ah_forward_bernoulli_(struct ah_call *c)
{
    const struct ah_args_bernoulli_ *arg = ah_args(c, bernoulli_);
    if (!(arg->p.number >= 0 && arg->p.number <= 1))
        return ah_fail(AH_EINVAL, "bernoulli_: expected p in 0..1, got %g", arg->p.number);
    return ah_call_kernel(c);
}

int ah_forward_random_(struct ah_call *c)
{
    const struct ah_args_random_ *arg = ah_args(c, random_);
    const struct ah_value *from = &arg->from, *to = &arg->to;
    int64_t low = to->kind == AH_INT ? from->integer : 0;
    int64_t high = to->kind == AH_INT ? to->integer : from->kind == AH_INT ? from->integer : INT64_MAX;
    if (high <= low)
        return ah_fail(AH_EINVAL, "random_: expected from < to, got %lld and %lld", (long long)low, (long long)high);
    if (from->kind == AH_INT || to->kind == AH_INT)
        AH_TRY(expect_range(c, low, high, arg->input.tensor->dtype));
    return ah_call_kernel(c);
}

int ah_forward_exponential_(struct ah_call *c)
{
    const struct ah_args_exponential_ *arg = ah_args(c, exponential_);
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(arg->lambd.number > 0))
        return ah_fail(AH_EINVAL, "exponential_: expected lambd above 0, got %g", arg->lambd.number);
    return ah_call_kernel(c);
}

int ah_forward_poisson(struct ah_call *c)
{
    const struct ah_tensor *input = ah_args(c, poisson)->input.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    return ah_call_single(c, input->size, input->ndim, input->dtype);
}

int ah_forward_standard_gamma(struct ah_call *c)
{
    const struct ah_tensor *input = ah_args(c, standard_gamma)->input.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    return ah_call_single(c, input->size, input->ndim, input->dtype);
}

int ah_forward_cauchy_(struct ah_call *c)
{
    const struct ah_args_cauchy_ *arg = ah_args(c, cauchy_);
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(arg->sigma.number > 0))
        return ah_fail(AH_EINVAL, "cauchy_: expected sigma above 0, got %g", arg->sigma.number);
    return ah_call_kernel(c);
}

int ah_forward_log_normal_(struct ah_call *c)
{
    const struct ah_args_log_normal_ *arg = ah_args(c, log_normal_);
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(arg->std.number > 0))
        return ah_fail(AH_EINVAL, "log_normal_: expected std above 0, got %g", arg->std.number);
    return ah_call_kernel(c);
}

int ah_forward_geometric_(struct ah_call *c)
{
    const struct ah_args_geometric_ *arg = ah_args(c, geometric_);
    if (!(arg->p.number > 0 && arg->p.number < 1))
        return ah_fail(AH_EINVAL, "geometric_: expected p between 0 and 1, got %g", arg->p.number);
    return ah_call_kernel(c);
}
