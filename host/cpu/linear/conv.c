/* Convolution kernels: oneDNN in channels-last order where it is built in and supports the shape, else im2col and
 * matmul in row-major order. A fast form returns 1 done, 0 declined, negative for an error; declined, it must have
 * changed nothing. */
#include "ops/nn/conv.h"

#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/linear/conv_direct.h"
#include "cpu/linear/conv_few.h"
#include "cpu/linear/conv_winograd.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/layout.h"
#include "cpu/loop/onednn.h"
#include "ops/dispatch/op.h"

#define LOOPS "cpu/linear/conv_loops.h"
#include "cpu/loop/for_reals.h"

static void fill_zero(struct ah_tensor *t)
{
    memset(ah_tensor_data(t), 0, ah_tensor_bytes(t));
}

/* The three products have two forms. In channels-last order oneDNN computes them (1 = done, 0 = it declines); in
 * row-major order im2col does. */

/* Is it computed on the halves themselves? */
static bool is_native(const struct ah_tensor *t)
{
    return t->dtype == AH_BF16 && ah_bf16_native();
}

static const void *open_weight(struct ah_arrays *a, struct ah_tensor *t, bool half)
{
    return half ? ah_array_as_is(a, t) : ah_array_in(a, t);
}

/* Close the arrays and the result of a product that is done (1), declined (0) or failed (negative). */
static int conv_fast_close(struct ah_arrays *a, struct ah_dense_out *out, bool half)
{
    int status = a->status, closed = ah_nhwc_out_close(out, status > 0, half);
    ah_arrays_close(a);
    return closed < 0 ? closed : status;
}

/* Is it one matrix product over the pixels: 1x1, without padding and groups? Gradients of oneDNN's convolution
 * reach 55 to 103 GFLOP/s where products reach 84 to 112; forward products are faster where the outputs are more than
 * the inputs, or the weight is large: 512 to 2048 channels of 7x7 104 GFLOP/s (93), back 100 (81), but 512 to 128 of
 * 28x28 97 (110) (Zen 4, one thread, the shapes of ResNet-50, 2026-11). */
static bool is_pointwise(const struct ah_conv *s)
{
    return s->kh == 1 && s->kw == 1 && s->groups == 1 && s->padding[0] == 0 && s->padding[1] == 0;
}

static bool is_strided(const struct ah_conv *s)
{
    return s->stride[0] > 1 || s->stride[1] > 1;
}

/* The pixels of an input that a strided 1x1 convolution uses, as rows of a matrix; a row has `bytes`. The copy needs
 * 5 % of the time of the product, and oneDNN's convolutions 1.2 to 1.9 times that of both, on two threads up to 2.3
 * times (1024 to 2048 channels of 14x14, Zen 5). */
struct pixels {
    const struct ah_conv *shape;
    char *image, *rows;
    size_t bytes;
};

static void pixels_gather(void *context, int64_t begin, int64_t end)
{
    const struct pixels *p = context;
    const struct ah_conv *s = p->shape;
    for (int64_t line = begin; line < end; line++) {
        int64_t from = line / s->oh * s->h + line % s->oh * s->stride[0];
        for (int64_t x = 0; x < s->ow; x++)
            memcpy(p->rows + (size_t)(line * s->ow + x) * p->bytes,
                   p->image + (size_t)(from * s->w + x * s->stride[1]) * p->bytes, p->bytes);
    }
}

static void pixels_scatter(void *context, int64_t begin, int64_t end)
{
    const struct pixels *p = context;
    const struct ah_conv *s = p->shape;
    for (int64_t line = begin; line < end; line++) {
        int64_t y = line % s->h / s->stride[0], from = line / s->h * s->oh + y;
        char *to = p->image + (size_t)(line * s->w) * p->bytes;
        memset(to, 0, (size_t)s->w * p->bytes);
        for (int64_t x = 0; line % s->h % s->stride[0] == 0 && y < s->oh && x < s->ow; x++)
            memcpy(to + (size_t)(x * s->stride[1]) * p->bytes, p->rows + (size_t)(from * s->ow + x) * p->bytes,
                   p->bytes);
    }
}

static struct pixels pixels_open(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *image)
{
    size_t bytes = (size_t)s->c * (half ? sizeof(uint16_t) : sizeof(float));
    char *rows = ah_array_scratch(a, (size_t)(s->n * s->oh * s->ow) * bytes);
    return (struct pixels){s, (char *)(uintptr_t)image, rows, bytes};
}

/* The input as rows of pixels: itself without a stride. NULL after a failure. */
static const void *pointwise_rows(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *x)
{
    if (!is_strided(s))
        return x;
    struct pixels p = pixels_open(a, s, half, x);
    if (p.rows)
        ah_parallel_units(s->n * s->oh, s->ow * s->c, AH_SHARE_LIGHT, pixels_gather, &p);
    return p.rows;
}

/* C = op(A) op(B) on arrays of float32, or with `half` of bfloat16: 1, or 0 where there is no fast kernel. */
static int pointwise_product(bool half, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a, const void *b,
                             void *c)
{
    int64_t lda = ta ? m : k, ldb = tb ? k : n;
    if (half)
        return ah_gemm_bf16(ta, tb, m, n, k, a, lda, b, ldb, NULL, c, n);
    AH_TRY(ah_gemm_f32(ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, n));
    return 1;
}

/* y[pixel, o] = sum over c of x[pixel, c] w[o, c]: 1, or 0 where the convolution is faster. */
static int pointwise_forward(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *x, const void *w,
                             const void *bias, void *y)
{
    bool large = s->c * s->oc >= 1 << 20 || is_strided(s);
    if (bias || s->c < 32 || (!large && (half || s->oc <= s->c)))
        return 0;
    const void *rows = pointwise_rows(a, s, half, x);
    return rows ? pointwise_product(half, false, true, s->n * s->oh * s->ow, s->oc, s->c, rows, w, y) : a->status;
}

/* Is it computed by Winograd's filtering? A quarter of the multiplications in float32 needs 0.55 to 0.8 of the time of
 * a convolution in bfloat16 (AVX512-BF16, Zen 5), but not of one with AMX. */
static bool is_filtered(const struct ah_conv *s, bool half)
{
    return ah_conv_winograd_pays(s, half) && !(half && ah_bf16_in_blocks());
}

/* Is it computed by sums for few outputs? AMX is faster. */
static bool is_few(const struct ah_conv *s, bool half)
{
    return ah_conv_few_pays(s, half) && !(half && ah_bf16_in_blocks());
}

static bool is_few_grad_input(const struct ah_conv *s, bool half)
{
    return ah_conv_few_pays_grad_input(s, half) && !(half && ah_bf16_in_blocks());
}

static int conv_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d *arg = ah_args(c, conv2d);
    struct ah_arrays a = {0};
    struct ah_dense_out y = {0};
    bool half = is_native(arg->input.tensor), filtered = is_filtered(s, half), few = is_few(s, half);
    const void *x = ah_array_nhwc(&a, arg->input.tensor, half);
    const void *w = open_weight(&a, arg->weight.tensor, half && !filtered && !few);
    const void *b = open_weight(&a, arg->bias.tensor, half && !filtered && !few);
    if (a.status == 0)
        a.status = ah_nhwc_out_open(&y, c->out[0], half);
    if (a.status == 0 && filtered)
        a.status = ah_conv_winograd(s, half, x, w, b, y.data);
    if (a.status == 0 && few)
        a.status = ah_conv_few(s, half, x, w, b, y.data);
    if (a.status == 0 && is_pointwise(s))
        a.status = pointwise_forward(&a, s, half, x, w, b, y.data);
    if (a.status == 0)
        a.status = ah_onednn_conv(s, half, x, w, b, y.data);
    return conv_fast_close(&a, &y, half);
}

int ah_cpu_conv2d(struct ah_call *c)
{
    const struct ah_args_conv2d *arg = ah_args(c, conv2d);
    struct ah_tensor *xt = arg->input.tensor, *wt = arg->weight.tensor;
    struct ah_conv s;
    AH_TRY(ah_conv_geometry(&s, "conv2d", xt->size, xt->ndim, wt->size, wt->ndim, AH_CONV_OPTIONS(arg)));
    if (s.n == 0)
        return 0;
    bool single = ah_compute_dtype(xt->dtype) == AH_F32;
    if (single && ah_onednn_built_in()) {
        int done = conv_fast(&s, c);
        if (done)
            return done < 0 ? done : 0;
    }
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, xt), *w = ah_array_in(&a, wt), *b = ah_array_in(&a, arg->bias.tensor);
    void *y = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        a.status = AH_BY_REAL(xt->dtype, conv, &s, x, w, b, y);
    return ah_arrays_close(&a);
}

/* x[pixel, c] = sum over o of g[pixel, o] w[o, c] */
static int pointwise_grad_input(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *g, const void *w,
                                void *x)
{
    int64_t rows = s->n * s->oh * s->ow;
    if (!is_strided(s))
        return pointwise_product(half, false, false, rows, s->c, s->oc, g, w, x);
    struct pixels p = pixels_open(a, s, half, x);
    int done = p.rows ? pointwise_product(half, false, false, rows, s->c, s->oc, g, w, p.rows) : a->status;
    if (done > 0)
        ah_parallel_units(s->n * s->h, s->w * s->c, AH_SHARE_LIGHT, pixels_scatter, &p);
    return done;
}

/* w[o, c] = sum over pixels of g[pixel, o] x[pixel, c] */
static int pointwise_grad_weight(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *x, const void *g,
                                 void *w)
{
    const void *rows = pointwise_rows(a, s, half, x);
    return rows ? pointwise_product(half, true, false, s->oc, s->c, s->n * s->oh * s->ow, g, rows, w) : a->status;
}

static int grad_input_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(c, conv2d_grad_input);
    struct ah_arrays a = {0};
    struct ah_dense_out x = {0};
    bool half = is_native(arg->grad.tensor), filtered = is_filtered(s, half), few = is_few_grad_input(s, half);
    const void *g = ah_array_nhwc(&a, arg->grad.tensor, half);
    const void *w = open_weight(&a, arg->weight.tensor, half && !filtered && !few);
    if (a.status == 0)
        a.status = ah_nhwc_out_open(&x, c->out[0], half);
    if (a.status == 0 && is_pointwise(s))
        a.status = pointwise_grad_input(&a, s, half, g, w, x.data);
    if (a.status == 0 && filtered)
        a.status = ah_conv_winograd_grad_input(s, half, g, w, x.data);
    if (a.status == 0 && few)
        a.status = ah_conv_few_grad_input(s, half, g, w, x.data);
    if (a.status == 0)
        a.status = ah_onednn_conv_grad_input(s, half, g, w, x.data);
    return conv_fast_close(&a, &x, half);
}

int ah_cpu_conv2d_grad_input(struct ah_call *c)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(c, conv2d_grad_input);
    struct ah_tensor *wt = arg->weight.tensor;
    struct ah_conv s;
    AH_TRY(ah_conv_geometry(&s, c->op->name, arg->input_size.ints.at, arg->input_size.ints.count, wt->size, wt->ndim,
                            AH_CONV_OPTIONS(arg)));
    if (s.n == 0)
        return 0;
    bool single = ah_compute_dtype(wt->dtype) == AH_F32;
    if (single && ah_onednn_built_in()) {
        int done = grad_input_fast(&s, c);
        if (done)
            return done < 0 ? done : 0;
    }
    struct ah_arrays a = {0};
    const void *g = ah_array_in(&a, arg->grad.tensor), *w = ah_array_in(&a, wt);
    void *x = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        a.status = AH_BY_REAL(wt->dtype, conv_grad_input, &s, g, w, x);
    return ah_arrays_close(&a);
}

static int grad_weight_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d_grad_weight *arg = ah_args(c, conv2d_grad_weight);
    struct ah_arrays a = {0};
    bool half = is_native(arg->input.tensor), filtered = is_filtered(s, half);
    const void *g = ah_array_nhwc(&a, arg->grad.tensor, half), *x = ah_array_nhwc(&a, arg->input.tensor, half);
    void *w = half && !filtered ? ah_tensor_data(c->out[0]) : ah_array_out(&a, c->out[0]);
    if (a.status == 0 && is_pointwise(s))
        a.status = pointwise_grad_weight(&a, s, half, x, g, w);
    if (a.status == 0 && filtered)
        a.status = ah_conv_winograd_grad_weight(s, half, x, g, w);
    if (a.status == 0 && !half)
        a.status = ah_conv_direct_grad_weight(s, x, g, w);
    if (a.status == 0)
        a.status = ah_onednn_conv_grad_weight(s, half, x, g, w);
    return ah_arrays_close(&a);
}

int ah_cpu_conv2d_grad_weight(struct ah_call *c)
{
    const struct ah_args_conv2d_grad_weight *arg = ah_args(c, conv2d_grad_weight);
    struct ah_tensor *xt = arg->input.tensor;
    struct ah_conv s;
    AH_TRY(ah_conv_geometry(&s, c->op->name, xt->size, xt->ndim, arg->weight_size.ints.at, arg->weight_size.ints.count,
                            AH_CONV_OPTIONS(arg)));
    if (s.n == 0) {
        fill_zero(c->out[0]);
        return 0;
    }
    bool single = ah_compute_dtype(xt->dtype) == AH_F32;
    if (single && (ah_onednn_built_in() || ah_conv_direct_fits(&s))) {
        int done = grad_weight_fast(&s, c);
        if (done)
            return done < 0 ? done : 0;
    }
    struct ah_arrays a = {0};
    const void *g = ah_array_in(&a, arg->grad.tensor), *x = ah_array_in(&a, xt);
    void *w = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        a.status = AH_BY_REAL(xt->dtype, conv_grad_weight, &s, x, g, w);
    return ah_arrays_close(&a);
}

int ah_cpu_channel_sum(struct ah_call *c)
{
    struct ah_tensor *t = ah_args(c, channel_sum)->input.tensor;
    int64_t channels = c->out[0]->numel, pixels = t->size[t->ndim - 2] * t->size[t->ndim - 1];
    int64_t n = t->ndim == 4 ? t->size[0] : 1;
    bool last = ah_compute_dtype(t->dtype) == AH_F32 && t->storage->channels_last, half = t->dtype == AH_BF16;
    struct ah_arrays a = {0};
    const void *x = last ? ah_array_nhwc(&a, t, half) : ah_array_in(&a, t);
    void *y = ah_array_out(&a, c->out[0]);
    if (a.status == 0 && last)
        a.status = half ? ah_column_sum_bf16(x, n * pixels, channels, y)
                        : ah_column_sum_f32(x, n * pixels, channels, y);
    else if (a.status == 0)
        AH_BY_REAL(t->dtype, channel_sum, x, n, channels, pixels, y);
    return ah_arrays_close(&a);
}
