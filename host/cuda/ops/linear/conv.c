/* Convolutions of images and volumes. Where tensor cores compute (fp16 and bf16, and float32 that may be rounded for
 * them) tensors are channels-last, which those read as it is: other operands are transposed, results of images stay so,
 * and the following ops keep it; those of volumes are transposed back. Other float32 is in rows. cuDNN supports one
 * order or the other; unsupported cases, float64, and everything where it is missing are products of matrices. */
#include "cuda/ops/linear/conv.h"

#include <stdio.h>

#include "base/status/status.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/linear/conv.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "ops/dispatch/precision.h"

static struct ah_cuda_kernel bias_kernel[] = AH_CUDA_REALS("conv", "conv_bias");

/* A tensor of a convolution as a batch of matrices, which the other order has transposed. */
struct order {
    int64_t batch, rows, columns;
};

static struct order order_of(const struct ah_conv *s, const struct ah_tensor *t, bool weight)
{
    if (weight)
        return (struct order){s->oc, s->c / s->groups, s->depth.kernel * s->kh * s->kw};
    int64_t channels = t->size[t->ndim - (s->volume ? 4 : 3)];
    return (struct order){s->n, channels, t->numel / (s->n * channels)};
}

static bool conv_transposes(struct order o)
{
    return o.rows > 1 && o.columns > 1;
}

/* `t` with its memory in an order, at a multiple of 16. */
static int open_ordered(struct ah_call *c, const struct ah_conv *s, struct ah_tensor *t, bool weight, bool last,
                        struct ah_tensor **out)
{
    struct order o = order_of(s, t, weight);
    AH_OWNED struct ah_tensor *dense = NULL;
    if (t->storage->channels_last && last) {
        *out = ah_tensor_retain(t);
        return 0;
    }
    AH_TRY(ah_tensor_row_major(t));
    AH_TRY(ah_cuda_dense(c->device, &dense, t, t->dtype));
    bool turn = last && conv_transposes(o);
    if (!turn && (uintptr_t)ah_tensor_data(dense) % 16 == 0) {
        *out = ah_tensor_retain(dense);
        return 0;
    }
    size_t item = ah_dtype_size(t->dtype);
    AH_TRY(ah_tensor_empty(out, t->size, t->ndim, t->dtype, c->device));
    return ah_cuda_transpose(c->device, ah_tensor_data(*out), ah_tensor_data(dense), turn ? o.batch : 1,
                             turn ? o.rows : 1, turn ? o.columns : t->numel, item);
}

/* The tensor that the kind writes; set_read sets the others: `first` and `second` are the op's first arguments. */
static uint64_t *conv_written(struct ah_cuda_conv *conv)
{
    return conv->kind == AH_CONV_FORWARD ? &conv->output
           : conv->kind == AH_CONV_GRAD_INPUT ? &conv->input : &conv->weight;
}

static void set_read(struct ah_cuda_conv *conv, const struct ah_tensor *first, const struct ah_tensor *second)
{
    *(conv->kind == AH_CONV_FORWARD ? &conv->input : &conv->output) = ah_cuda_data(first);
    *(conv->kind == AH_CONV_GRAD_WEIGHT ? &conv->input : &conv->weight) = ah_cuda_data(second);
}

/* By cuDNN, into out[0] or, where that cannot be marked, through a tensor in the order that it wants. */
static int by_dnn(struct ah_call *c, struct ah_cuda_conv *conv, struct ah_tensor *first, struct ah_tensor *second)
{
    bool weight = conv->kind == AH_CONV_GRAD_WEIGHT;
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *a = NULL, *b = NULL, *made = NULL;
    struct order o = order_of(conv->shape, out, weight);
    bool turn = conv->last && conv_transposes(o), marks = turn && !weight && out->ndim == 4;
    AH_TRY(open_ordered(c, conv->shape, first, false, conv->last, &a));
    AH_TRY(open_ordered(c, conv->shape, second, !weight, conv->last, &b));
    if ((turn && !marks) || (uintptr_t)ah_tensor_data(out) % 16)
        AH_TRY(ah_tensor_empty(&made, out->size, out->ndim, out->dtype, c->device));
    set_read(conv, a, b);
    *conv_written(conv) = ah_cuda_data(made ? made : out);
    int status = ah_cuda_dnn_convolve(c->device, c->op->name, conv);
    if (status > 0 && made) {
        bool back = turn && !marks;
        int turned = ah_cuda_transpose(c->device, ah_tensor_data(out), ah_tensor_data(made), back ? o.batch : 1,
                                       back ? o.columns : 1, back ? o.rows : out->numel, ah_dtype_size(out->dtype));
        status = turned < 0 ? turned : status;
    }
    if (status > 0)
        out->storage->channels_last = marks;
    return status;
}

/* By products. Gradients of halves are computed in float32, since they are sums of results of products. */
static int by_patches(struct ah_call *c, struct ah_cuda_conv *conv, struct ah_tensor *first, struct ah_tensor *second)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *a = NULL, *b = NULL, *made = NULL;
    enum ah_dtype dtype = conv->kind == AH_CONV_FORWARD ? out->dtype : ah_compute_dtype(out->dtype);
    conv->last = false;
    conv->dtype = dtype;
    AH_TRY(ah_tensor_row_major(first));
    AH_TRY(ah_tensor_row_major(second));
    AH_TRY(ah_cuda_dense(c->device, &a, first, dtype));
    AH_TRY(ah_cuda_dense(c->device, &b, second, dtype));
    if (dtype != out->dtype)
        AH_TRY(ah_tensor_empty(&made, out->size, out->ndim, dtype, c->device));
    set_read(conv, a, b);
    *conv_written(conv) = ah_cuda_data(made ? made : out);
    AH_TRY(ah_cuda_patches_convolve(c->device, c->op->name, conv));
    if (made)
        AH_TRY(ah_cuda_assign(c->device, out, made));
    return 0;
}

/* Add the shapes to an error of missing memory. */
static int append_shapes(struct ah_call *c, int status)
{
    char reason[400];
    if (status != AH_ENOMEM)
        return status;
    snprintf(reason, sizeof reason, "%s", ah_error_text());
    return ah_fail(AH_ENOMEM, "%s: %s %s, %s %s: %s", c->op->name, c->op->param[0].name, ah_shape(c->arg[0].tensor),
                   c->op->param[1].name, ah_shape(c->arg[1].tensor), reason);
}

static int conv_convolve(struct ah_call *c, enum ah_cuda_conv_kind kind, const struct ah_conv *s)
{
    struct ah_tensor *first = c->arg[0].tensor, *second = c->arg[1].tensor;
    enum ah_dtype dtype = first->dtype;
    bool tf32 = dtype == AH_F32 && ah_precision()->conv_tf32;
    struct ah_cuda_conv conv = {.kind = kind, .dtype = dtype, .tf32 = tf32, .shape = s,
                                .last = dtype != AH_F32 || tf32};
    bool may = dtype != AH_F64 && ah_precision()->dnn;
    for (int attempt = 0; attempt < 2 && may; attempt++, conv.last = !conv.last) {
        if (!ah_cuda_dnn_takes(c->device, &conv))
            continue;
        int done = by_dnn(c, &conv, first, second);
        if (done)
            return done < 0 ? append_shapes(c, done) : 0;
    }
    return append_shapes(c, by_patches(c, &conv, first, second));
}

static int add_bias(struct ah_call *c, const struct ah_conv *s, struct ah_tensor *bias)
{
    struct ah_tensor *y = c->out[0];
    AH_OWNED struct ah_tensor *dense = NULL;
    int64_t pack = (int64_t)(16 / ah_dtype_size(y->dtype));
    struct ah_conv_bias_args args = {.y = ah_cuda_data(y), .count = y->numel, .channels = s->oc,
                                     .last = y->storage->channels_last, .pixels = s->depth.out * s->oh * s->ow};
    AH_TRY(ah_cuda_dense(c->device, &dense, bias, y->dtype));
    args.bias = ah_cuda_data(dense);
    args.wide = args.y % 16 == 0 && (args.last ? args.channels : args.pixels) % pack == 0;
    return ah_cuda_launch(c->device, &bias_kernel[y->dtype], c->op->name,
                          ah_cuda_grid_for(args.wide ? y->numel / pack : y->numel, AH_CONV_THREADS), &args);
}

/* The geometry of images or, by the weight's dims, of volumes. */
static int geometry_of(struct ah_conv *s, const struct ah_call *c, const int64_t *input, int input_ndim,
                       const int64_t *weight, int weight_ndim, struct ah_conv_options options)
{
    return weight_ndim == 5
               ? ah_conv_volume_geometry(s, ah_conv_name(c), input, input_ndim, weight, weight_ndim, options)
               : ah_conv_geometry(s, c->op->name, input, input_ndim, weight, weight_ndim, options);
}

int ah_cuda_conv2d(struct ah_call *c)
{
    const struct ah_args_conv2d *arg = ah_args(c, conv2d);
    const struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor;
    struct ah_tensor *bias = ah_given(&arg->bias);
    struct ah_conv s;
    AH_TRY(geometry_of(&s, c, x->size, x->ndim, w->size, w->ndim, AH_CONV_OPTIONS(arg)));
    if (s.n == 0)
        return 0;
    AH_TRY(conv_convolve(c, AH_CONV_FORWARD, &s));
    return bias ? add_bias(c, &s, bias) : 0;
}

int ah_cuda_conv2d_grad_input(struct ah_call *c)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(c, conv2d_grad_input);
    const struct ah_tensor *w = arg->weight.tensor;
    struct ah_conv s;
    AH_TRY(geometry_of(&s, c, arg->input_size.ints.at, arg->input_size.ints.count, w->size, w->ndim,
                       AH_CONV_OPTIONS(arg)));
    return s.n == 0 ? 0 : conv_convolve(c, AH_CONV_GRAD_INPUT, &s);
}

int ah_cuda_conv2d_grad_weight(struct ah_call *c)
{
    const struct ah_args_conv2d_grad_weight *arg = ah_args(c, conv2d_grad_weight);
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_tensor *out = c->out[0];
    struct ah_conv s;
    AH_TRY(geometry_of(&s, c, x->size, x->ndim, arg->weight_size.ints.at, arg->weight_size.ints.count,
                       AH_CONV_OPTIONS(arg)));
    if (s.n == 0)
        return ah_cuda_fill(c->device, ah_tensor_data(out), 0, ah_tensor_bytes(out));
    return conv_convolve(c, AH_CONV_GRAD_WEIGHT, &s);
}

AH_CUDA_OP(conv_volume, ah_cuda_conv2d(c))
AH_CUDA_OP(conv_volume_grad_input, ah_cuda_conv2d_grad_input(c))
AH_CUDA_OP(conv_volume_grad_weight, ah_cuda_conv2d_grad_weight(c))
