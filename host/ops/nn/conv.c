/* Convolutions: geometry from sizes and options, the checks of the rows that have kernels (forward and its two
 * adjoints, of images and of volumes), and the compositions: 1-d as images of height 1, transposed as the adjoint of
 * the forward. Geometry must not overflow: ah_pair bounds every option by 2^31 - 1. */
#include "ops/nn/conv.h"

#include <string.h>

#include "ops/dispatch/rows.h"

int ah_pair(const char *op, const char *name, const struct ah_value *value, const int64_t *fallback, int64_t least,
            int64_t *pair)
{
    if (value->kind == AH_NONE && fallback) {
        pair[0] = fallback[0];
        pair[1] = fallback[1];
    } else if (value->kind == AH_INT) {
        pair[0] = pair[1] = value->integer;
    } else if (value->kind == AH_INTS && (value->ints.count == 1 || value->ints.count == 2)) {
        pair[0] = value->ints.at[0];
        pair[1] = value->ints.at[value->ints.count - 1];
    } else if (value->kind == AH_INTS) {
        return ah_fail(AH_EINVAL, "%s: %s: expected a number or a table of 2, got a table of %d", op, name,
                       value->ints.count);
    } else {
        return ah_fail(AH_EINVAL, "%s: %s: expected a number or a table of 2", op, name);
    }
    if (pair[0] < least || pair[1] < least) {
        return ah_fail(AH_EINVAL, "%s: %s: expected at least %lld, got (%lld, %lld)", op, name, (long long)least,
                       (long long)pair[0], (long long)pair[1]);
    }
    if (pair[0] > INT32_MAX || pair[1] > INT32_MAX) {
        return ah_fail(AH_EINVAL, "%s: %s: expected at most %d, got (%lld, %lld)", op, name, INT32_MAX,
                       (long long)pair[0], (long long)pair[1]);
    }
    return 0;
}

static int64_t output_length(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation)
{
    int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

int ah_conv_geometry(struct ah_conv *s, const char *op, const int64_t *input, int input_ndim, const int64_t *weight,
                     int weight_ndim, struct ah_conv_options options)
{
    if (input_ndim != 4 && input_ndim != 3) {
        return ah_fail(AH_EINVAL, "%s: expected input (N, C, H, W) or (C, H, W), got %s", op,
                       ah_shape_text(input, input_ndim));
    }
    if (weight_ndim != 4) {
        return ah_fail(AH_EINVAL, "%s: expected weight (out, in / groups, kH, kW), got %s", op,
                       ah_shape_text(weight, weight_ndim));
    }
    memset(s, 0, sizeof *s);
    s->depth = (struct ah_conv_dim){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
    s->batched = input_ndim == 4;
    s->n = s->batched ? input[0] : 1;
    s->c = input[input_ndim - 3];
    s->h = input[input_ndim - 2];
    s->w = input[input_ndim - 1];
    s->oc = weight[0];
    s->kh = weight[2];
    s->kw = weight[3];
    AH_TRY(ah_pair(op, "stride", options.stride, NULL, 1, s->stride));
    AH_TRY(ah_pair(op, "padding", options.padding, NULL, 0, s->padding));
    AH_TRY(ah_pair(op, "dilation", options.dilation, NULL, 1, s->dilation));
    s->groups = options.groups->integer;
    bool countable = s->groups <= INT32_MAX && s->kh <= INT32_MAX && s->kw <= INT32_MAX;
    if (!countable || s->groups < 1 || s->oc % s->groups || weight[1] * s->groups != s->c || s->c == 0 || s->oc == 0) {
        return ah_fail(AH_EINVAL, "%s: input %s does not fit weight %s with groups = %lld", op,
                       ah_shape_text(input, input_ndim), ah_shape_text(weight, weight_ndim), (long long)s->groups);
    }
    s->oh = output_length(s->h, s->kh, s->stride[0], s->padding[0], s->dilation[0]);
    s->ow = output_length(s->w, s->kw, s->stride[1], s->padding[1], s->dilation[1]);
    if (s->kh < 1 || s->kw < 1 || s->oh < 1 || s->ow < 1) {
        return ah_fail(AH_EINVAL, "%s: the kernel of weight %s is larger than the padded input %s", op,
                       ah_shape_text(weight, weight_ndim), ah_shape_text(input, input_ndim));
    }
    return 0;
}

/* An option of a volume: the first of three is the depth's, the others become `plane`. */
static int volume_option(const char *op, const char *name, const struct ah_value *value, int64_t least, int64_t *depth,
                         struct ah_value *plane)
{
    int64_t pair[2];
    if (value->kind != AH_INTS || value->ints.count != 3)
        return ah_fail(AH_EINVAL, "%s: %s: expected a table of 3", op, name);
    AH_TRY(ah_pair(op, name, &AH_I(value->ints.at[0]), NULL, least, pair));
    *depth = pair[0];
    *plane = AH_INTS_OF(&value->ints.at[1], 2);
    return 0;
}

const char *ah_conv_name(const struct ah_call *c)
{
    return c->op->id == AH_OP_conv_volume ? "conv3d" : c->op->name;
}

int ah_conv_volume_geometry(struct ah_conv *s, const char *op, const int64_t *input, int input_ndim,
                            const int64_t *weight, int weight_ndim, struct ah_conv_options options)
{
    struct ah_value stride, padding, dilation;
    struct ah_conv_dim depth;
    if (input_ndim != 5 || weight_ndim != 5) {
        return ah_fail(AH_EINVAL, "%s: expected input (N, C, D, H, W) and weight (out, in / groups, kD, kH, kW), "
                       "got %s and %s", op, ah_shape_text(input, input_ndim), ah_shape_text(weight, weight_ndim));
    }
    AH_TRY(volume_option(op, "stride", options.stride, 1, &depth.stride, &stride));
    AH_TRY(volume_option(op, "padding", options.padding, 0, &depth.padding, &padding));
    AH_TRY(volume_option(op, "dilation", options.dilation, 1, &depth.dilation, &dilation));
    const int64_t image[4] = {input[0], input[1], input[3], input[4]};
    const int64_t plane[4] = {weight[0], weight[1], weight[3], weight[4]};
    AH_TRY(ah_conv_geometry(s, op, image, 4, plane, 4,
                            (struct ah_conv_options){&stride, &padding, &dilation, options.groups}));
    depth.in = input[2];
    depth.kernel = weight[2];
    bool countable = depth.kernel >= 1 && depth.kernel <= INT32_MAX;
    depth.out = countable ? output_length(depth.in, depth.kernel, depth.stride, depth.padding, depth.dilation) : 0;
    if (depth.out < 1) {
        return ah_fail(AH_EINVAL, "%s: the kernel of weight %s is larger than the padded input %s", op,
                       ah_shape_text(weight, weight_ndim), ah_shape_text(input, input_ndim));
    }
    s->volume = true;
    s->depth = depth;
    return 0;
}

int ah_conv_output_size(const struct ah_conv *s, int64_t *size)
{
    int ndim = 0;
    if (s->batched)
        size[ndim++] = s->n;
    size[ndim++] = s->oc;
    if (s->volume)
        size[ndim++] = s->depth.out;
    size[ndim++] = s->oh;
    size[ndim++] = s->ow;
    return ndim;
}

static int same_dtype(const struct ah_call *c, int i, int j)
{
    const struct ah_tensor *a = c->arg[i].tensor, *b = c->arg[j].tensor;
    if (a->dtype == b->dtype)
        return 0;
    return ah_fail(AH_EINVAL, "%s: dtypes differ: %s is %s, %s is %s", ah_conv_name(c), c->op->param[i].name,
                   ah_dtype_name(a->dtype), c->op->param[j].name, ah_dtype_name(b->dtype));
}

typedef int (*conv_geometry_fn)(struct ah_conv *s, const char *op, const int64_t *input, int input_ndim,
                                const int64_t *weight, int weight_ndim, struct ah_conv_options options);

static int conv_forward(struct ah_call *c, conv_geometry_fn geometry)
{
    const struct ah_args_conv2d *arg = ah_args(c, conv2d);
    const struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor, *b = arg->bias.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(same_dtype(c, 0, 1));
    struct ah_conv s;
    AH_TRY(geometry(&s, ah_conv_name(c), x->size, x->ndim, w->size, w->ndim, AH_CONV_OPTIONS(arg)));
    if (b) {
        AH_TRY(same_dtype(c, 0, 2));
        if (b->ndim != 1 || b->size[0] != s.oc) {
            return ah_fail(AH_EINVAL, "%s: bias %s does not fit weight %s", ah_conv_name(c), ah_shape(b), ah_shape(w));
        }
    }
    int64_t size[5];
    int ndim = ah_conv_output_size(&s, size);
    return ah_call_single(c, size, ndim, x->dtype);
}

AH_FORWARD(conv2d, conv_forward(c, ah_conv_geometry))
AH_FORWARD(conv_volume, conv_forward(c, ah_conv_volume_geometry))

int ah_gradient_output(struct ah_call *c, const int64_t *expected, int ndim, const struct ah_value *size)
{
    const struct ah_tensor *g = c->arg[0].tensor;
    if (g->ndim != ndim || memcmp(g->size, expected, (size_t)ndim * sizeof *expected) != 0) {
        return ah_fail(AH_EINVAL, "%s: expected a gradient of shape %s, got %s", c->op->name,
                       ah_shape_text(expected, ndim), ah_shape(g));
    }
    return ah_call_single(c, size->ints.at, size->ints.count, g->dtype);
}

/* The gradient of a convolution with respect to its tensor of size `size`: the weight, or the input. */
static int conv_gradient(struct ah_call *c, conv_geometry_fn geometry, bool of_weight)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(c, conv2d_grad_input);
    const struct ah_tensor *other = c->arg[1].tensor;
    const struct ah_value *size = &arg->input_size, given = AH_INTS_OF(other->size, other->ndim);
    const struct ah_value *input = of_weight ? &given : size, *weight = of_weight ? size : &given;
    struct ah_conv s;
    int64_t expected[5];
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(same_dtype(c, 0, 1));
    AH_TRY(geometry(&s, c->op->name, input->ints.at, input->ints.count, weight->ints.at, weight->ints.count,
                    AH_CONV_OPTIONS(arg)));
    return ah_gradient_output(c, expected, ah_conv_output_size(&s, expected), size);
}

AH_FORWARD(conv2d_grad_input, conv_gradient(c, ah_conv_geometry, false))
AH_FORWARD(conv2d_grad_weight, conv_gradient(c, ah_conv_geometry, true))
AH_FORWARD(conv_volume_grad_input, conv_gradient(c, ah_conv_volume_geometry, false))
AH_FORWARD(conv_volume_grad_weight, conv_gradient(c, ah_conv_volume_geometry, true))

/* The sum over all dims but the channel: the gradient of a convolution's bias. */
int ah_forward_channel_sum(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, channel_sum)->input.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    return ah_call_single(c, &x->size[x->ndim - 3], 1, x->dtype);
}

/* Composites. */

static struct ah_value pair_of(int64_t first, int64_t second)
{
    return AH_INTS_OF((int64_t[]){first, second}, 2);
}

int ah_row_options(const struct ah_call *c, int from, int count, const int64_t *neutral, struct ah_value *pairs)
{
    for (int i = 0; i < count; i++) {
        const struct ah_value *value = &c->arg[from + i];
        bool one = value->kind == AH_INT || (value->kind == AH_INTS && value->ints.count == 1);
        if (!one && value->kind != AH_NONE) {
            return ah_fail(AH_EINVAL, "%s: %s: expected one integer, got %d", c->op->name, c->op->param[from + i].name,
                           value->ints.count);
        }
        int64_t number = value->kind == AH_INT ? value->integer : one ? value->ints.at[0] : 0;
        pairs[i] = one ? pair_of(neutral[i], number) : AH_NIL;
    }
    return 0;
}

/* (N, C, L) as (N, C, 1, L): a row is an image of height 1. */
static int conv_lift(const struct ah_call *c, int i, struct ah_tensor **out)
{
    const struct ah_tensor *t = c->arg[i].tensor;
    if (i == 0 ? t->ndim != 2 && t->ndim != 3 : t->ndim != 3) {
        return ah_fail(AH_EINVAL, "%s: expected %s, got %s", c->op->name,
                       i == 0 ? "input (N, C, L) or (C, L)" : "weight with 3 dimensions", ah_shape(t));
    }
    return ah_op1(AH_OP_unsqueeze, out, c->arg[i], AH_I(-2));
}

/* Check for errors that conv2d would report, with the row's names: sizes that do not fit each other. `pairs` are
 * stride, padding, dilation. */
static int check_row(const struct ah_call *c, const struct ah_value *pairs)
{
    const struct ah_args_conv1d *arg = ah_args(c, conv1d);
    const struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor, *b = arg->bias.tensor;
    int64_t groups = arg->groups.integer;
    if ((x->ndim != 2 && x->ndim != 3) || w->ndim != 3)
        return 0; /* for lift to refuse */
    if (groups < 1 || groups > INT32_MAX || w->size[1] * groups != x->size[x->ndim - 2] || w->size[0] % groups) {
        return ah_fail(AH_EINVAL, "conv1d: input %s does not fit weight %s with groups = %lld", ah_shape(x),
                       ah_shape(w), (long long)groups);
    }
    if (b && (b->ndim != 1 || b->size[0] != w->size[0]))
        return ah_fail(AH_EINVAL, "conv1d: bias %s does not fit weight %s", ah_shape(b), ah_shape(w));
    for (int i = 0; i < 3; i++)
        if (pairs[i].ints.at[1] < (i != 1) || pairs[i].ints.at[1] > INT32_MAX)
            return 0; /* for conv2d to refuse */
    if (w->size[2] < 1 || output_length(x->size[x->ndim - 1], w->size[2], pairs[0].ints.at[1], pairs[1].ints.at[1],
                                        pairs[2].ints.at[1]) < 1) {
        return ah_fail(AH_EINVAL, "conv1d: the kernel of weight %s is larger than the padded input %s", ah_shape(w),
                       ah_shape(x));
    }
    return 0;
}

/* The 2-d op of input and weight as images of height 1 and these arguments from the third on; its result without the
 * height is the call's. */
static int conv_lifted(struct ah_call *c, enum ah_opid op, struct ah_value *args, int count)
{
    AH_OWNED struct ah_tensor *x = NULL, *w = NULL, *y = NULL;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(same_dtype(c, 0, 1));
    AH_TRY(conv_lift(c, 0, &x));
    AH_TRY(conv_lift(c, 1, &w));
    args[0] = AH_T(x);
    args[1] = AH_T(w);
    AH_TRY(ah_op_call1(op, &y, args, count));
    AH_TRY(ah_op1(AH_OP_squeeze, &c->out[0], AH_T(y), AH_I(-2)));
    c->out_count = 1;
    return 0;
}

int ah_forward_conv1d(struct ah_call *c)
{
    const struct ah_args_conv1d *arg = ah_args(c, conv1d);
    struct ah_value pairs[3];
    AH_TRY(ah_row_options(c, 3, 3, (int64_t[]){1, 0, 1}, pairs));
    AH_TRY(check_row(c, pairs));
    struct ah_value args[] = {AH_NIL, AH_NIL, arg->bias, pairs[0], pairs[1], pairs[2], arg->groups};
    return conv_lifted(c, AH_OP_conv2d, args, 7);
}

int ah_forward_conv_transpose1d(struct ah_call *c)
{
    const struct ah_args_conv_transpose1d *arg = ah_args(c, conv_transpose1d);
    struct ah_value pairs[3], dilation;
    AH_TRY(ah_row_options(c, 3, 3, (int64_t[]){1, 0, 0}, pairs));
    AH_TRY(ah_row_options(c, 7, 1, (int64_t[]){1}, &dilation));
    struct ah_value args[] = {AH_NIL, AH_NIL, arg->bias, pairs[0], pairs[1], pairs[2], arg->groups, dilation};
    return conv_lifted(c, AH_OP_conv_transpose2d, args, 8);
}

/* x with `count` zeros more at the end of a dim: the steps that an output padding of a stride or more adds. */
static int conv_lengthened(struct ah_tensor **out, struct ah_tensor *x, int dim, int64_t count)
{
    if (count == 0) {
        *out = ah_tensor_retain(x);
        return 0;
    }
    int64_t size[AH_MAX_DIMS];
    memcpy(size, x->size, sizeof size);
    size[x->ndim + dim] = count;
    AH_OWNED struct ah_tensor *zeros = NULL;
    AH_TRY(ah_op1(AH_OP_zeros, &zeros, AH_INTS_OF(size, x->ndim), AH_D(x->dtype), AH_DEV(x->storage->device)));
    struct ah_tensor *part[2] = {x, zeros};
    return ah_op1(AH_OP_cat, out, AH_L(part, 2), AH_I(dim));
}

/* The adjoint of a convolution that maps (C, H, W) to the input's shape; its weight is (in, out / groups, kH, kW). */
int ah_forward_conv_transpose2d(struct ah_call *c)
{
    const struct ah_args_conv_transpose2d *arg = ah_args(c, conv_transpose2d);
    const struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor, *b = arg->bias.tensor;
    if ((x->ndim != 4 && x->ndim != 3) || w->ndim != 4) {
        return ah_fail(AH_EINVAL, "conv_transpose2d: expected input (N, C, H, W) or (C, H, W) and weight (in, out / "
                       "groups, kH, kW), got %s and %s", ah_shape(x), ah_shape(w));
    }
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(same_dtype(c, 0, 1));
    int64_t stride[2], padding[2], extra[2], dilation[2], groups = arg->groups.integer;
    AH_TRY(ah_pair("conv_transpose2d", "stride", &arg->stride, NULL, 1, stride));
    AH_TRY(ah_pair("conv_transpose2d", "padding", &arg->padding, NULL, 0, padding));
    AH_TRY(ah_pair("conv_transpose2d", "output_padding", &arg->output_padding, NULL, 0, extra));
    AH_TRY(ah_pair("conv_transpose2d", "dilation", &arg->dilation, NULL, 1, dilation));
    if (x->size[x->ndim - 3] != w->size[0]) {
        return ah_fail(AH_EINVAL, "conv_transpose2d: input %s does not fit weight %s (in, out / groups, kH, kW)",
                       ah_shape(x), ah_shape(w));
    }
    int64_t size[4];
    int at = 0;
    if (x->ndim == 4)
        size[at++] = x->size[0];
    int64_t channels = w->size[1] * groups;
    size[at++] = channels;
    for (int i = 0; i < 2; i++) {
        if (extra[i] >= stride[i] && extra[i] >= dilation[i])
            return ah_fail(AH_EINVAL, "conv_transpose2d: output_padding must be below stride or dilation");
        size[at++] = (x->size[x->ndim - 2 + i] - 1) * stride[i] - 2 * padding[i] +
                     dilation[i] * (w->size[2 + i] - 1) + extra[i] + 1;
        if (size[at - 1] < 1)
            return ah_fail(AH_EINVAL, "conv_transpose2d: the result of input %s has no size", ah_shape(x));
    }
    if (b && (b->ndim != 1 || b->size[0] != channels))
        return ah_fail(AH_EINVAL, "conv_transpose2d: bias %s does not fit weight %s", ah_shape(b), ah_shape(w));
    AH_OWNED struct ah_tensor *rows = NULL, *long_x = NULL, *y = NULL, *bias = NULL;
    AH_TRY(conv_lengthened(&rows, arg->input.tensor, -2, extra[0] / stride[0]));
    AH_TRY(conv_lengthened(&long_x, rows, -1, extra[1] / stride[1]));
    AH_TRY(ah_op1(AH_OP_conv2d_grad_input, &y, AH_T(long_x), arg->weight, AH_INTS_OF(size, at),
                  pair_of(stride[0], stride[1]), pair_of(padding[0], padding[1]), pair_of(dilation[0], dilation[1]),
                  AH_I(groups)));
    if (b) {
        AH_TRY(ah_op1(AH_OP_reshape, &bias, arg->bias, AH_INTS_OF((int64_t[]){channels, 1, 1}, 3)));
        AH_TRY(ah_op1(AH_OP_add, &c->out[0], AH_T(y), AH_T(bias)));
    } else {
        c->out[0] = ah_tensor_retain(y);
    }
    c->out_count = 1;
    return 0;
}
