/* Convolution kernels: in channels-last order, where oneDNN is built in, by the forms of conv_*.h that pay for the
 * geometry (each states when), or else by oneDNN; im2col and matmul in row-major order. A fast form returns 1 done, 0
 * declined, negative for an error; declined, it must have changed nothing. */
#include "ops/nn/conv.h"

#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/conv/conv_direct.h"
#include "cpu/conv/conv_few.h"
#include "cpu/conv/conv_products.h"
#include "cpu/conv/conv_winograd.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/layout.h"
#include "cpu/loop/onednn.h"
#include "ops/dispatch/op.h"

#define LOOPS "cpu/conv/conv_loops.h"
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

/* The input of a convolution in the order in which it is computed. */
static const void *open_image(struct ah_arrays *a, const struct ah_conv *s, struct ah_tensor *t, bool half)
{
    return ah_conv_is_whole(s) ? open_weight(a, t, half) : ah_array_nhwc(a, t, half);
}

/* Close the arrays and the result of a product that is done (1), declined (0) or failed (negative). */
static int conv_fast_close(struct ah_arrays *a, struct ah_dense_out *out, bool half)
{
    int status = a->status, closed = ah_nhwc_out_close(out, status > 0, half);
    ah_arrays_close(a);
    return closed < 0 ? closed : status;
}

/* Is it computed by Winograd's filtering? A quarter of the multiplications in float32 needs 0.55 to 0.8 of the time of
 * a convolution in bfloat16 (AVX512-BF16, Zen 5), but not of one with AMX. */
static bool is_filtered(const struct ah_conv *s, bool half)
{
    return ah_conv_winograd_pays(s, half) && !(half && ah_bf16_in_blocks());
}

static bool is_filtered_grad_input(const struct ah_conv *s, bool half)
{
    return ah_conv_winograd_pays_grad_input(s, half) && !(half && ah_bf16_in_blocks());
}

/* Is it computed by sums for few outputs? AMX is faster. */
static bool is_few(const struct ah_conv *s, bool half)
{
    return !ah_conv_is_whole(s) && ah_conv_few_pays(s, half) && !(half && ah_bf16_in_blocks());
}

static bool is_few_grad_input(const struct ah_conv *s, bool half)
{
    return !ah_conv_is_whole(s) && ah_conv_few_pays_grad_input(s, half) && !(half && ah_bf16_in_blocks());
}

static int conv_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d *arg = ah_args(c, conv2d);
    struct ah_arrays a = {0};
    struct ah_dense_out y = {0};
    bool half = is_native(arg->input.tensor), filtered = is_filtered(s, half), few = is_few(s, half);
    const void *x = open_image(&a, s, arg->input.tensor, half);
    const void *w = open_weight(&a, arg->weight.tensor, half && !filtered && !few);
    const void *b = open_weight(&a, arg->bias.tensor, half && !filtered && !few);
    if (a.status == 0)
        a.status = ah_nhwc_out_open(&y, c->out[0], half);
    if (a.status == 0 && ah_conv_is_whole(s)) {
        a.status = ah_conv_whole(s, half, x, w, b, y.data);
        return conv_fast_close(&a, &y, half);
    }
    if (a.status == 0 && filtered)
        a.status = ah_conv_winograd(s, half, x, w, b, y.data);
    if (a.status == 0 && few)
        a.status = ah_conv_few(s, half, x, w, b, y.data);
    if (a.status == 0)
        a.status = ah_conv_products(&a, s, half, x, w, b, y.data);
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

static int grad_input_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(c, conv2d_grad_input);
    struct ah_arrays a = {0};
    struct ah_dense_out x = {0};
    bool half = is_native(arg->grad.tensor), filtered = is_filtered_grad_input(s, half);
    bool few = is_few_grad_input(s, half);
    const void *g = ah_array_nhwc(&a, arg->grad.tensor, half);
    const void *w = open_weight(&a, arg->weight.tensor, half && !filtered && !few);
    if (a.status == 0)
        a.status = ah_nhwc_out_open(&x, c->out[0], half);
    if (a.status == 0 && ah_conv_is_whole(s))
        a.status = ah_conv_whole_grad_input(&a, s, half, g, w, x.data);
    if (a.status == 0)
        a.status = ah_conv_products_grad_input(&a, s, half, g, w, x.data);
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
    bool half = is_native(arg->input.tensor);
    bool filtered = ah_conv_winograd_pays_grad_weight(s, half) && !(half && ah_bf16_in_blocks());
    const void *g = ah_array_nhwc(&a, arg->grad.tensor, half), *x = open_image(&a, s, arg->input.tensor, half);
    void *w = half && !filtered ? ah_tensor_data(c->out[0]) : ah_array_out(&a, c->out[0]);
    if (a.status == 0 && ah_conv_is_whole(s)) {
        a.status = ah_conv_whole_grad_weight(s, half, x, g, w);
        return ah_arrays_close(&a);
    }
    if (a.status == 0 && filtered)
        a.status = ah_conv_winograd_grad_weight(s, half, x, g, w);
    if (a.status == 0)
        a.status = ah_conv_products_grad_weight(&a, s, half, x, g, w);
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
