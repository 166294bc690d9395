/* Pooling windows: geometry from sizes and options, checks, and the 1-d forms as images of height 1. The place of a
 * maximum is its tap's number within the window, so windows of more than 2^31 - 1 taps are refused. */
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/nn/conv.h"
#include "ops/nn/pool.h"

static int64_t pooled_length(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil)
{
    int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
    if (room < 0 && !(ceil && room + stride - 1 >= 0))
        return 0;
    int64_t length = (room + (ceil ? stride - 1 : 0)) / stride + 1;
    /* The last window must begin inside the input or its left padding. */
    if (ceil && (length - 1) * stride >= in + padding)
        length--;
    return length;
}

static int split_input(struct ah_window *s, const char *op, const int64_t *input, int ndim)
{
    if (ndim != 4 && ndim != 3) {
        return ah_fail(AH_EINVAL, "%s: expected input (N, C, H, W) or (C, H, W), got %s", op,
                       ah_shape_text(input, ndim));
    }
    memset(s, 0, sizeof *s);
    s->batched = ndim == 4;
    s->n = s->batched ? input[0] : 1;
    s->c = input[ndim - 3];
    s->h = input[ndim - 2];
    s->w = input[ndim - 1];
    return 0;
}

int ah_window_geometry(struct ah_window *s, const char *op, const int64_t *input, int ndim,
                       const struct ah_value *kernel, const struct ah_value *stride, const struct ah_value *padding,
                       const struct ah_value *dilation, bool ceil_mode)
{
    const struct ah_value one = AH_I(1);
    AH_TRY(split_input(s, op, input, ndim));
    AH_TRY(ah_pair(op, "kernel_size", kernel, NULL, 1, s->kernel));
    AH_TRY(ah_pair(op, "stride", stride, s->kernel, 1, s->stride));
    AH_TRY(ah_pair(op, "padding", padding, NULL, 0, s->padding));
    AH_TRY(ah_pair(op, "dilation", dilation ? dilation : &one, NULL, 1, s->dilation));
    if (s->padding[0] > s->kernel[0] / 2 || s->padding[1] > s->kernel[1] / 2) {
        return ah_fail(AH_EINVAL, "%s: padding (%lld, %lld) is more than half of kernel_size (%lld, %lld)", op,
                       (long long)s->padding[0], (long long)s->padding[1], (long long)s->kernel[0],
                       (long long)s->kernel[1]);
    }
    s->oh = pooled_length(s->h, s->kernel[0], s->stride[0], s->padding[0], s->dilation[0], ceil_mode);
    s->ow = pooled_length(s->w, s->kernel[1], s->stride[1], s->padding[1], s->dilation[1], ceil_mode);
    if (s->oh < 1 || s->ow < 1) {
        return ah_fail(AH_EINVAL, "%s: kernel_size (%lld, %lld) is larger than the padded input %s", op,
                       (long long)s->kernel[0], (long long)s->kernel[1], ah_shape_text(input, ndim));
    }
    return 0;
}

static int output_size(const struct ah_window *s, int64_t *size)
{
    int at = 0;
    if (s->batched)
        size[at++] = s->n;
    size[at++] = s->c;
    size[at++] = s->oh;
    size[at++] = s->ow;
    return at;
}

static int pool_gradient(struct ah_call *c, const struct ah_window *s, const struct ah_value *size)
{
    int64_t expected[4];
    return ah_gradient_output(c, expected, output_size(s, expected), size);
}

int ah_forward_max_pool2d(struct ah_call *c)
{
    const struct ah_args_max_pool2d *arg = ah_args(c, max_pool2d);
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_window s;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(ah_window_geometry(&s, "max_pool2d", x->size, x->ndim, &arg->kernel_size, &arg->stride, &arg->padding,
                              &arg->dilation, arg->ceil_mode.flag));
    if (s.kernel[0] * s.kernel[1] > INT32_MAX) {
        return ah_fail(AH_EINVAL, "max_pool2d: kernel_size (%lld, %lld) has more than %d places",
                       (long long)s.kernel[0], (long long)s.kernel[1], INT32_MAX);
    }
    int64_t size[4];
    int ndim = output_size(&s, size);
    AH_TRY(ah_call_output(c, 0, size, ndim, x->dtype));
    bool indices = arg->return_indices.flag;
    if (indices)
        AH_TRY(ah_call_output(c, 1, size, ndim, AH_I64));
    if (indices || c->recording) {
        AH_TRY(ah_tensor_empty(&c->extra[0], size, ndim, ah_window_fits_byte(&s) ? AH_U8 : AH_I32, c->device));
    }
    return ah_call_kernel(c);
}

/* Convert each maximum's position in its window to its position in the input plane. */
int ah_forward_max_pool2d_positions(struct ah_call *c)
{
    const struct ah_tensor *place = ah_args(c, max_pool2d_positions)->place.tensor;
    return ah_call_single(c, place->size, place->ndim, AH_I64);
}

int ah_forward_max_pool2d_backward(struct ah_call *c)
{
    const struct ah_args_max_pool2d_backward *arg = ah_args(c, max_pool2d_backward);
    const struct ah_value *size = &arg->input_size;
    struct ah_window s;
    AH_TRY(ah_window_geometry(&s, c->op->name, size->ints.at, size->ints.count, &arg->kernel_size, &arg->stride,
                              &arg->padding, &arg->dilation, arg->ceil_mode.flag));
    return pool_gradient(c, &s, size);
}

static int check_divisor(const struct ah_call *c, const struct ah_value *divisor)
{
    if (divisor->kind == AH_NONE || divisor->integer != 0)
        return 0;
    return ah_fail(AH_EINVAL, "%s: divisor_override must not be 0", c->op->name);
}

int ah_forward_avg_pool2d(struct ah_call *c)
{
    const struct ah_args_avg_pool2d *arg = ah_args(c, avg_pool2d);
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_window s;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(ah_window_geometry(&s, "avg_pool2d", x->size, x->ndim, &arg->kernel_size, &arg->stride, &arg->padding, NULL,
                              arg->ceil_mode.flag));
    AH_TRY(check_divisor(c, &arg->divisor_override));
    int64_t size[4];
    int ndim = output_size(&s, size);
    return ah_call_single(c, size, ndim, x->dtype);
}

int ah_forward_avg_pool2d_backward(struct ah_call *c)
{
    const struct ah_args_avg_pool2d_backward *arg = ah_args(c, avg_pool2d_backward);
    const struct ah_value *size = &arg->input_size;
    struct ah_window s;
    AH_TRY(ah_window_geometry(&s, c->op->name, size->ints.at, size->ints.count, &arg->kernel_size, &arg->stride,
                              &arg->padding, NULL, arg->ceil_mode.flag));
    return pool_gradient(c, &s, size);
}

static int adaptive_geometry(struct ah_window *s, const struct ah_call *c, const int64_t *input, int ndim,
                             const struct ah_value *output)
{
    int64_t size[2];
    AH_TRY(split_input(s, c->op->name, input, ndim));
    AH_TRY(ah_pair(c->op->name, "output_size", output, NULL, 0, size));
    s->oh = size[0];
    s->ow = size[1];
    if (s->h == 0 || s->w == 0)
        return ah_fail(AH_EINVAL, "%s: input %s has empty planes", c->op->name, ah_shape_text(input, ndim));
    return 0;
}

/* out[0] of an adaptive pool. Sizes that the input keeps are written into the arguments, for kernel and rule. */
static int adaptive_output(struct ah_call *c, struct ah_value *output)
{
    const struct ah_tensor *x = c->arg[0].tensor;
    struct ah_window s;
    int64_t size[4];
    AH_TRY(ah_call_expect_float(c, 0));
    for (int i = 0; x->ndim >= 2 && output->ints.count == 2 && i < 2; i++)
        if (output->ints.at[i] == AH_SAME_SIZE)
            output->ints.at[i] = x->size[x->ndim - 2 + i];
    AH_TRY(adaptive_geometry(&s, c, x->size, x->ndim, output));
    return ah_call_output(c, 0, size, output_size(&s, size), x->dtype);
}

int ah_forward_adaptive_avg_pool2d(struct ah_call *c)
{
    AH_TRY(adaptive_output(c, &ah_args(c, adaptive_avg_pool2d)->output_size));
    return ah_call_kernel(c);
}

int ah_forward_adaptive_avg_pool2d_backward(struct ah_call *c)
{
    const struct ah_args_adaptive_avg_pool2d_backward *arg = ah_args(c, adaptive_avg_pool2d_backward);
    const struct ah_value *size = &arg->input_size;
    struct ah_window s;
    AH_TRY(adaptive_geometry(&s, c, size->ints.at, size->ints.count, &arg->output_size));
    return pool_gradient(c, &s, size);
}

/* The places of the maxima are kept for the gradient. */
int ah_forward_adaptive_max_pool2d(struct ah_call *c)
{
    struct ah_args_adaptive_max_pool2d *arg = ah_args(c, adaptive_max_pool2d);
    AH_TRY(adaptive_output(c, &arg->output_size));
    const struct ah_tensor *y = c->out[0];
    if (arg->return_indices.flag)
        AH_TRY(ah_call_output(c, 1, y->size, y->ndim, AH_I64));
    AH_TRY(ah_tensor_empty(&c->extra[0], y->size, y->ndim, AH_I64, c->device));
    return ah_call_kernel(c);
}

/* Rows as images of height 1. */

/* The 2-d op of x and these arguments; its results without their height are the call's. */
static int pool_lifted(struct ah_call *c, enum ah_opid op, const struct ah_value *args, int count)
{
    struct ah_tensor *y[AH_MAX_OUTS] = {NULL};
    int given = 0, status = ah_op_call(op, args, count, false, y, &given);
    for (int i = 0; i < given; i++) {
        if (status == 0)
            status = ah_op1(AH_OP_squeeze, &c->out[i], AH_T(y[i]), AH_I(-2));
        c->out_count += status == 0;
        ah_tensor_release(y[i]);
    }
    ah_tensor_release(args[0].tensor);
    return status;
}

static int expect_rows(const struct ah_call *c)
{
    const struct ah_tensor *t = c->arg[0].tensor;
    if (t->ndim == 2 || t->ndim == 3)
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected input (N, C, L) or (C, L), got %s", c->op->name, ah_shape(t));
}

static int pool_lift(const struct ah_call *c, struct ah_tensor **out)
{
    return ah_op1(AH_OP_unsqueeze, out, c->arg[0], AH_I(-2));
}

/* Check for errors that the 2-d op would report, with the row's names: its padding, and windows larger than the input.
 * `pairs` are kernel_size, stride, padding. */
static int check_row(const struct ah_call *c, const struct ah_value *pairs, int64_t dilation, bool ceil_mode)
{
    const struct ah_tensor *x = c->arg[0].tensor;
    int64_t kernel = pairs[0].ints.at[1], padding = pairs[2].ints.at[1], length = x->size[x->ndim - 1];
    int64_t stride = pairs[1].kind == AH_NONE ? kernel : pairs[1].ints.at[1];
    const int64_t option[4] = {kernel, stride, padding, dilation};
    for (int i = 0; i < 4; i++)
        if (option[i] < (i != 2) || option[i] > INT32_MAX)
            return 0; /* for the 2-d op to refuse */
    if (padding > kernel / 2) {
        return ah_fail(AH_EINVAL, "%s: padding %lld is more than half of kernel_size %lld", c->op->name,
                       (long long)padding, (long long)kernel);
    }
    if (pooled_length(length, kernel, stride, padding, dilation, ceil_mode) < 1) {
        return ah_fail(AH_EINVAL, "%s: kernel_size %lld is larger than the padded input %s", c->op->name,
                       (long long)kernel, ah_shape(x));
    }
    return 0;
}

int ah_forward_max_pool1d(struct ah_call *c)
{
    const struct ah_args_max_pool1d *arg = ah_args(c, max_pool1d);
    struct ah_tensor *x = NULL;
    struct ah_value pairs[4];
    AH_TRY(expect_rows(c));
    AH_TRY(ah_row_options(c, 1, 4, (int64_t[]){1, 1, 0, 1}, pairs));
    AH_TRY(check_row(c, pairs, pairs[3].ints.at[1], arg->ceil_mode.flag));
    AH_TRY(pool_lift(c, &x));
    const struct ah_value args[] = {AH_T(x), pairs[0], pairs[1], pairs[2], pairs[3], arg->ceil_mode,
                                    arg->return_indices};
    return pool_lifted(c, AH_OP_max_pool2d, args, 7);
}

int ah_forward_avg_pool1d(struct ah_call *c)
{
    const struct ah_args_avg_pool1d *arg = ah_args(c, avg_pool1d);
    struct ah_tensor *x = NULL;
    struct ah_value pairs[3];
    AH_TRY(expect_rows(c));
    AH_TRY(ah_row_options(c, 1, 3, (int64_t[]){1, 1, 0}, pairs));
    AH_TRY(check_row(c, pairs, 1, arg->ceil_mode.flag));
    AH_TRY(pool_lift(c, &x));
    const struct ah_value args[] = {AH_T(x), pairs[0], pairs[1], pairs[2], arg->ceil_mode, arg->count_include_pad};
    return pool_lifted(c, AH_OP_avg_pool2d, args, 6);
}

int ah_forward_adaptive_avg_pool1d(struct ah_call *c)
{
    struct ah_tensor *x = NULL;
    struct ah_value size;
    AH_TRY(expect_rows(c));
    AH_TRY(ah_row_options(c, 1, 1, (int64_t[]){1}, &size));
    AH_TRY(pool_lift(c, &x));
    const struct ah_value args[] = {AH_T(x), size};
    return pool_lifted(c, AH_OP_adaptive_avg_pool2d, args, 2);
}

int ah_forward_adaptive_max_pool1d(struct ah_call *c)
{
    struct ah_tensor *x = NULL;
    struct ah_value size;
    AH_TRY(expect_rows(c));
    AH_TRY(ah_row_options(c, 1, 1, (int64_t[]){1}, &size));
    AH_TRY(pool_lift(c, &x));
    const struct ah_value args[] = {AH_T(x), size, ah_args(c, adaptive_max_pool1d)->return_indices};
    return pool_lifted(c, AH_OP_adaptive_max_pool2d, args, 3);
}
