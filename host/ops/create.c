/* Making tensors: shape and dtype of what constants, sequences, triangles and random rows give, and the range checks
 * of their numbers. Kernels only fill: whatever could be asked for wrongly is refused here. */
#include <math.h>
#include <string.h>

#include "ops/rows.h"

/* Most rows: an output of the given shape and dtype, filled by the kernel. */
static int make(struct ah_call *c, const struct ah_value *size, const struct ah_value *dtype)
{
    AH_TRY(ah_call_output(c, 0, size->ints.at, size->ints.count, dtype->dtype));
    return ah_call_kernel(c);
}

static int make_like(struct ah_call *c, const struct ah_value *dtype)
{
    const struct ah_tensor *like = c->arg[0].tensor;
    AH_TRY(ah_call_output(c, 0, like->size, like->ndim, dtype->kind == AH_DTYPE ? dtype->dtype : like->dtype));
    c->arg[0] = AH_NIL; /* it lent its shape; it may lie on another device */
    return ah_call_kernel(c);
}

static int expect_float_output(const struct ah_call *c, enum ah_dtype dtype)
{
    if (ah_dtype_is_float(dtype))
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected a floating dtype, got %s", c->op->name, ah_dtype_name(dtype));
}

int ah_forward_empty(struct ah_call *c)
{
    return ah_call_output(c, 0, c->arg[0].ints.at, c->arg[0].ints.count, c->arg[1].dtype);
}

int ah_forward_filled(struct ah_call *c)
{
    return make(c, &c->arg[0], &c->arg[1]);
}

int ah_forward_filled_like(struct ah_call *c)
{
    return make_like(c, &c->arg[1]);
}

int ah_forward_full(struct ah_call *c)
{
    AH_TRY(ah_call_expect_fits(c, 1, c->arg[2].dtype));
    return make(c, &c->arg[0], &c->arg[2]);
}

int ah_forward_empty_like(struct ah_call *c)
{
    const struct ah_tensor *like = c->arg[0].tensor;
    return ah_call_output(c, 0, like->size, like->ndim, c->arg[1].kind == AH_DTYPE ? c->arg[1].dtype : like->dtype);
}

int ah_forward_full_like(struct ah_call *c)
{
    enum ah_dtype dtype = c->arg[2].kind == AH_DTYPE ? c->arg[2].dtype : c->arg[0].tensor->dtype;
    AH_TRY(ah_call_expect_fits(c, 1, dtype));
    return make_like(c, &c->arg[2]);
}

int ah_forward_rand_like(struct ah_call *c)
{
    enum ah_dtype dtype = c->arg[1].kind == AH_DTYPE ? c->arg[1].dtype : c->arg[0].tensor->dtype;
    AH_TRY(expect_float_output(c, dtype));
    AH_TRY(ah_tensor_empty_ordered(&c->out[0], c->arg[0].tensor, dtype, c->device));
    c->out_count = 1;
    c->arg[0] = AH_NIL; /* it lent its shape; it may lie on another device */
    return ah_call_kernel(c);
}

int ah_forward_rand(struct ah_call *c)
{
    AH_TRY(expect_float_output(c, c->arg[1].dtype));
    return make(c, &c->arg[0], &c->arg[1]);
}

/* One number is the end, as in PyTorch. Kept for the kernel: state = start, step. */
int ah_forward_arange(struct ah_call *c)
{
    bool one = c->arg[1].kind == AH_NONE;
    double start = one ? 0 : c->arg[0].number, end = one ? c->arg[0].number : c->arg[1].number;
    double step = c->arg[2].number;
    if (step == 0 || !isfinite(start) || !isfinite(end) || !isfinite(step))
        return ah_fail(AH_EINVAL, "arange: expected finite bounds and a step other than 0, got %g, %g, %g", start, end,
                       step);
    if ((end - start) * step < 0)
        return ah_fail(AH_EINVAL, "arange: a step of %g does not lead from %g to %g", step, start, end);
    enum ah_dtype dtype = AH_F32;
    if (c->arg[3].kind == AH_DTYPE)
        dtype = c->arg[3].dtype;
    else if (start == floor(start) && end == floor(end) && step == floor(step))
        dtype = AH_I64;
    double count = ceil((end - start) / step);
    if (count > 0x1p53)
        return ah_fail(AH_EINVAL, "arange: %g elements are too many", count);
    c->state.sequence.start = start;
    c->state.sequence.step = step;
    AH_TRY(ah_call_output(c, 0, (int64_t[]){(int64_t)count}, 1, dtype));
    return ah_call_kernel(c);
}

int ah_forward_linspace(struct ah_call *c)
{
    int64_t steps = c->arg[2].integer;
    if (steps < 0)
        return ah_fail(AH_EINVAL, "linspace: expected steps of 0 or more, got %lld", (long long)steps);
    AH_TRY(ah_call_output(c, 0, &steps, 1, c->arg[3].dtype));
    return ah_call_kernel(c);
}

int ah_forward_eye(struct ah_call *c)
{
    int64_t n = c->arg[0].integer, size[2] = {n, c->arg[1].kind == AH_INT ? c->arg[1].integer : n};
    AH_TRY(ah_call_output(c, 0, size, 2, c->arg[2].dtype));
    return ah_call_kernel(c);
}

int ah_forward_triangle(struct ah_call *c)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    if (input->ndim < 2)
        return ah_fail(AH_EINVAL, "%s: expected at least 2 dims, got shape %s", c->op->name, ah_shape(input));
    AH_TRY(ah_call_output(c, 0, input->size, input->ndim, input->dtype));
    return ah_call_kernel(c);
}

/* One more than the largest class; that none is negative or too large is the kernel's to see. */
static int count_classes(struct ah_tensor *input, int64_t *classes)
{
    struct ah_tensor *here;
    int64_t largest = -1;
    AH_TRY(ah_host_copy(&here, input));
    for (int64_t i = 0; i < here->numel; i++) {
        int64_t value = ah_tensor_get_int(here, i);
        largest = value > largest ? value : largest;
    }
    ah_tensor_release(here);
    if (largest == INT64_MAX)
        return ah_fail(AH_EINVAL, "one_hot: class %lld is too large", (long long)largest);
    if (largest < 0)
        return ah_fail(AH_EINVAL, "one_hot: num_classes cannot be told from %s",
                       input->numel ? "negative classes" : "an empty input");
    *classes = largest + 1;
    return 0;
}

int ah_forward_one_hot(struct ah_call *c)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    int64_t classes = c->arg[1].integer, size[AH_MAX_DIMS];
    if (ah_dtype_category(input->dtype) != AH_CATEGORY_INT)
        return ah_fail(AH_EINVAL, "one_hot: expected an integer input, got %s", ah_dtype_name(input->dtype));
    if (input->ndim == AH_MAX_DIMS)
        return ah_fail(AH_EINVAL, "one_hot: the result would have %d dims", AH_MAX_DIMS + 1);
    if (classes < 0)
        AH_TRY(count_classes(c->arg[0].tensor, &classes));
    memcpy(size, input->size, sizeof size);
    size[input->ndim] = classes;
    AH_TRY(ah_call_output(c, 0, size, input->ndim + 1, AH_I64));
    return ah_call_kernel(c);
}

/* Whole numbers low..high-1 must lie within the dtype's range. */
static int expect_range(const struct ah_call *c, int64_t low, int64_t high, enum ah_dtype dtype)
{
    int64_t least = -65504, most = 65504; /* of float16; the other floats hold every int64 */
    if ((!ah_dtype_int_range(dtype, &least, &most) && dtype != AH_F16) || (low >= least && high - 1 <= most))
        return 0;
    return ah_fail(AH_EINVAL, "%s: %lld..%lld exceeds what %s holds", c->op->name, (long long)low, (long long)high - 1,
                   ah_dtype_name(dtype));
}

int ah_forward_randint(struct ah_call *c)
{
    if (c->arg[1].integer <= c->arg[0].integer)
        return ah_fail(AH_EINVAL, "randint: expected low < high, got %lld and %lld", (long long)c->arg[0].integer,
                       (long long)c->arg[1].integer);
    AH_TRY(expect_range(c, c->arg[0].integer, c->arg[1].integer, c->arg[3].dtype));
    return make(c, &c->arg[2], &c->arg[3]);
}

int ah_forward_randperm(struct ah_call *c)
{
    int64_t n = c->arg[0].integer;
    if (n < 0)
        return ah_fail(AH_EINVAL, "randperm: expected n of 0 or more, got %lld", (long long)n);
    AH_TRY(ah_call_output(c, 0, &n, 1, c->arg[1].dtype));
    return ah_call_kernel(c);
}

int ah_forward_bernoulli(struct ah_call *c)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(ah_call_output(c, 0, input->size, input->ndim, input->dtype));
    return ah_call_kernel(c);
}

int ah_forward_multinomial(struct ah_call *c)
{
    const struct ah_tensor *input = c->arg[0].tensor;
    int64_t samples = c->arg[1].integer;
    AH_TRY(ah_call_expect_float(c, 0));
    if (input->ndim < 1 || input->ndim > 2)
        return ah_fail(AH_EINVAL, "multinomial: expected 1 or 2 dims, got shape %s", ah_shape(input));
    int64_t classes = input->size[input->ndim - 1];
    if (samples <= 0 || classes == 0 || (!c->arg[2].flag && samples > classes))
        return ah_fail(AH_EINVAL, "multinomial: cannot draw %lld samples %s replacement from %lld classes",
                       (long long)samples, c->arg[2].flag ? "with" : "without", (long long)classes);
    int64_t size[2] = {input->size[0], samples};
    AH_TRY(ah_call_output(c, 0, input->ndim == 1 ? &size[1] : size, input->ndim, AH_I64));
    return ah_call_kernel(c);
}

int ah_forward_uniform_(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(c->arg[1].number <= c->arg[2].number))
        return ah_fail(AH_EINVAL, "uniform_: expected from <= to, got %g and %g", c->arg[1].number, c->arg[2].number);
    return ah_call_kernel(c);
}

int ah_forward_normal_(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(c->arg[2].number >= 0))
        return ah_fail(AH_EINVAL, "normal_: expected std of 0 or more, got %g", c->arg[2].number);
    return ah_call_kernel(c);
}

int ah_forward_bernoulli_(struct ah_call *c)
{
    if (!(c->arg[1].number >= 0 && c->arg[1].number <= 1))
        return ah_fail(AH_EINVAL, "bernoulli_: expected p in 0..1, got %g", c->arg[1].number);
    return ah_call_kernel(c);
}

int ah_forward_random_(struct ah_call *c)
{
    const struct ah_value *from = &c->arg[1], *to = &c->arg[2];
    int64_t low = to->kind == AH_INT ? from->integer : 0;
    int64_t high = to->kind == AH_INT ? to->integer : from->kind == AH_INT ? from->integer : INT64_MAX;
    if (high <= low)
        return ah_fail(AH_EINVAL, "random_: expected from < to, got %lld and %lld", (long long)low, (long long)high);
    if (from->kind == AH_INT || to->kind == AH_INT)
        AH_TRY(expect_range(c, low, high, c->arg[0].tensor->dtype));
    return ah_call_kernel(c);
}

int ah_forward_exponential_(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    if (!(c->arg[1].number > 0))
        return ah_fail(AH_EINVAL, "exponential_: expected lambd above 0, got %g", c->arg[1].number);
    return ah_call_kernel(c);
}
