/* Convolution kernels: oneDNN in channels-last order where it is built in and supports the shape, else im2col and
 * matmul in row-major order. A fast form returns 1 done, 0 declined, negative for an error; declined, it must have
 * changed nothing. */
#include "ops/nn/conv.h"

#include <string.h>

#include "base/process/parallel.h"
#include "cpu/kernels.h"
#include "cpu/linear/conv_direct.h"
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

static int open_weight(struct ah_dense *dense, struct ah_tensor *t, bool half)
{
    return half ? ah_dense_open_as_is(dense, t) : ah_dense_open(dense, t);
}

static int conv_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d *arg = ah_args(c, conv2d);
    struct ah_dense x = {0}, w = {0}, b = {0};
    struct ah_dense_out y = {0};
    int status;
    bool half = is_native(arg->input.tensor);
    AH_TRYGO(ah_nhwc_open(&x, arg->input.tensor, half), out);
    AH_TRYGO(open_weight(&w, arg->weight.tensor, half), out);
    AH_TRYGO(open_weight(&b, arg->bias.tensor, half), out);
    AH_TRYGO(ah_nhwc_out_open(&y, c->out[0], half), out);
    status = ah_onednn_conv(s, half, x.data, w.data, b.data, y.data);
    int closed = ah_nhwc_out_close(&y, status > 0, half);
    status = closed < 0 ? closed : status;
out:
    ah_nhwc_out_close(&y, false, half);
    ah_dense_close(&x);
    ah_dense_close(&w);
    ah_dense_close(&b);
    return status;
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
    if (single && ah_onednn_version()) {
        int done = conv_fast(&s, c);
        if (done)
            return done < 0 ? done : 0;
    }
    struct ah_dense x = {0}, w = {0}, b = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&w, wt), out);
    AH_TRYGO(ah_dense_open(&b, arg->bias.tensor), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    status = single ? conv_f32(&s, x.data, w.data, b.data, y.data) : conv_f64(&s, x.data, w.data, b.data, y.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&x);
    ah_dense_close(&w);
    ah_dense_close(&b);
    return status;
}

static int grad_input_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(c, conv2d_grad_input);
    struct ah_dense g = {0}, w = {0};
    struct ah_dense_out x = {0};
    int status;
    bool half = is_native(arg->grad.tensor);
    AH_TRYGO(ah_nhwc_open(&g, arg->grad.tensor, half), out);
    AH_TRYGO(open_weight(&w, arg->weight.tensor, half), out);
    AH_TRYGO(ah_nhwc_out_open(&x, c->out[0], half), out);
    status = ah_onednn_conv_grad_input(s, half, g.data, w.data, x.data);
    int closed = ah_nhwc_out_close(&x, status > 0, half);
    status = closed < 0 ? closed : status;
out:
    ah_nhwc_out_close(&x, false, half);
    ah_dense_close(&g);
    ah_dense_close(&w);
    return status;
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
    if (single && ah_onednn_version()) {
        int done = grad_input_fast(&s, c);
        if (done)
            return done < 0 ? done : 0;
    }
    struct ah_dense g = {0}, w = {0};
    struct ah_dense_out x = {0};
    int status;
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&w, wt), out);
    AH_TRYGO(ah_dense_out_open(&x, c->out[0]), out);
    status = single ? conv_grad_input_f32(&s, g.data, w.data, x.data)
                    : conv_grad_input_f64(&s, g.data, w.data, x.data);
out:
    ah_dense_out_close(&x);
    ah_dense_close(&g);
    ah_dense_close(&w);
    return status;
}

static int grad_weight_fast(const struct ah_conv *s, struct ah_call *c)
{
    const struct ah_args_conv2d_grad_weight *arg = ah_args(c, conv2d_grad_weight);
    struct ah_dense g = {0}, x = {0};
    struct ah_dense_out w = {0};
    int status;
    bool half = is_native(arg->input.tensor);
    AH_TRYGO(ah_nhwc_open(&g, arg->grad.tensor, half), out);
    AH_TRYGO(ah_nhwc_open(&x, arg->input.tensor, half), out);
    if (half) {
        status = ah_onednn_conv_grad_weight(s, true, x.data, g.data, ah_tensor_data(c->out[0]));
        goto out;
    }
    AH_TRYGO(ah_dense_out_open(&w, c->out[0]), out);
    status = ah_conv_direct_grad_weight(s, x.data, g.data, w.data);
    if (status == 0)
        status = ah_onednn_conv_grad_weight(s, false, x.data, g.data, w.data);
out:
    ah_dense_out_close(&w);
    ah_dense_close(&g);
    ah_dense_close(&x);
    return status;
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
    if (single && (ah_onednn_version() || ah_conv_direct_fits(&s))) {
        int done = grad_weight_fast(&s, c);
        if (done)
            return done < 0 ? done : 0;
    }
    struct ah_dense g = {0}, x = {0};
    struct ah_dense_out w = {0};
    int status;
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_out_open(&w, c->out[0]), out);
    status = single ? conv_grad_weight_f32(&s, x.data, g.data, w.data)
                    : conv_grad_weight_f64(&s, x.data, g.data, w.data);
out:
    ah_dense_out_close(&w);
    ah_dense_close(&g);
    ah_dense_close(&x);
    return status;
}

int ah_cpu_channel_sum(struct ah_call *c)
{
    struct ah_tensor *t = ah_args(c, channel_sum)->input.tensor;
    int64_t channels = c->out[0]->numel, pixels = t->size[t->ndim - 2] * t->size[t->ndim - 1];
    int64_t n = t->ndim == 4 ? t->size[0] : 1;
    bool single = ah_compute_dtype(t->dtype) == AH_F32, last = single && t->storage->channels_last;
    struct ah_dense x = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(last ? ah_nhwc_open(&x, t, t->dtype == AH_BF16) : ah_dense_open(&x, t), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    if (last && t->dtype == AH_BF16)
        status = ah_column_sum_bf16(x.data, n * pixels, channels, y.data);
    else if (last)
        status = ah_column_sum_f32(x.data, n * pixels, channels, y.data);
    else if (single)
        channel_sum_f32(x.data, n, channels, pixels, y.data);
    else
        channel_sum_f64(x.data, n, channels, pixels, y.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&x);
    return status;
}
