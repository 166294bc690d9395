/* Batch norm and layer norm: tensors as the arrays of norm.h, in the order in which they are stored. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/layout.h"
#include "cpu/reduce/norm.h"
#include "ops/dispatch/op.h"

/* The ops. */

static struct ah_batch batch_of(const struct ah_tensor *t)
{
    struct ah_batch b = {t->size[0], t->size[1], 1};
    for (int d = 2; d < t->ndim; d++)
        b.pixels *= t->size[d];
    return b;
}

/* The storage of a batch: `last` channels-last, `rows` as rows of channels, which planes of one pixel are too; `half`:
 * bfloat16 that loops over rows read and write as it is. */
struct batch_storage {
    bool last, rows, half;
};

static struct batch_storage batch_storage_of(const struct ah_batch *b, const struct ah_tensor *t)
{
    bool single = ah_compute_dtype(t->dtype) == AH_F32, last = single && t->storage->channels_last;
    bool rows = last || (single && b->pixels == 1);
    return (struct batch_storage){last, rows, rows && t->dtype == AH_BF16};
}

static const struct ah_row_loops *batch_row_loops(struct batch_storage s)
{
    return s.half ? &ah_row_loops_bf16 : &ah_row_loops_f32;
}

static int batch_open(struct ah_dense *dense, struct ah_tensor *t, struct batch_storage s)
{
    if (s.last)
        return ah_nhwc_open(dense, t, s.half);
    return s.half ? ah_dense_open_as_is(dense, t) : ah_dense_open(dense, t);
}

static int batch_out_open(struct ah_dense_out *dense, struct ah_tensor *out, struct batch_storage s)
{
    if (!s.half)
        return ah_dense_out_open(dense, out);
    *dense = (struct ah_dense_out){.out = out, .data = ah_tensor_data(out)};
    return 0;
}

/* The running statistics move towards the batch's; the variance that is kept is the unbiased one. */
static void update_running(struct ah_call *c, const struct ah_batch *b, double momentum)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *running[2] = {arg->running_mean.tensor, arg->running_var.tensor};
    double count = (double)(b->n * b->pixels);
    for (int s = 0; s < 2; s++) {
        if (!running[s])
            continue;
        for (int64_t k = 0; k < b->c; k++) {
            double fresh = ah_tensor_get(c->extra[s], k) * (s == 1 ? count / (count - 1) : 1);
            ah_tensor_set(running[s], k, (1 - momentum) * ah_tensor_get(running[s], k) + momentum * fresh);
        }
        ah_tensor_touch(running[s]);
    }
}

/* The statistics to normalise with: extra[0] the mean, extra[1] the variance for now. */
static int batch_stats(struct ah_call *c, const struct ah_batch *b, const void *x, struct batch_storage storage)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *mean = c->extra[0], *variance = c->extra[1];
    if (!arg->training.flag) {
        for (int64_t k = 0; k < b->c; k++) {
            ah_tensor_set(mean, k, ah_tensor_get(arg->running_mean.tensor, k));
            ah_tensor_set(variance, k, ah_tensor_get(arg->running_var.tensor, k));
        }
        return 0;
    }
    if (storage.rows)
        AH_TRY(batch_row_loops(storage)->stats(b, x, ah_tensor_data(mean), ah_tensor_data(variance)));
    else if (mean->dtype == AH_F32)
        ah_plane_stats_f32(b, x, ah_tensor_data(mean), ah_tensor_data(variance));
    else
        ah_plane_stats_f64(b, x, ah_tensor_data(mean), ah_tensor_data(variance));
    update_running(c, b, arg->momentum.number);
    return 0;
}

int ah_cpu_batch_norm(struct ah_call *c)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0];
    struct ah_batch b = batch_of(xt);
    struct batch_storage storage = batch_storage_of(&b, xt);
    struct ah_dense x = {0}, w = {0}, bias = {0}, factors = {0};
    struct ah_dense_out y = {0};
    int status;
    if (out->numel == 0)
        return 0;
    AH_TRYGO(batch_open(&x, xt, storage), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_open(&bias, arg->bias.tensor), out);
    AH_TRYGO(ah_dense_scratch(&factors, (size_t)(2 * b.c) * sizeof(double)), out);
    AH_TRYGO(batch_stats(c, &b, x.data, storage), out);
    for (int64_t k = 0; k < b.c; k++) {
        double variance = ah_tensor_get(c->extra[1], k);
        ah_tensor_set(c->extra[1], k, 1 / sqrt(variance + arg->eps.number));
    }
    AH_TRYGO(batch_out_open(&y, out, storage), out);
    const void *mean = ah_tensor_data(c->extra[0]), *inverse = ah_tensor_data(c->extra[1]);
    if (ah_compute_dtype(xt->dtype) == AH_F32) {
        float *scale = factors.block, *shift = scale + b.c;
        ah_norm_affine_factors_f32(b.c, mean, inverse, w.data, bias.data, scale, shift);
        if (storage.rows)
            batch_row_loops(storage)->apply(&b, x.data, scale, shift, y.data);
        else
            ah_plane_apply_f32(&b, x.data, scale, shift, y.data);
    } else {
        double *scale = factors.block, *shift = scale + b.c;
        ah_norm_affine_factors_f64(b.c, mean, inverse, w.data, bias.data, scale, shift);
        ah_plane_apply_f64(&b, x.data, scale, shift, y.data);
    }
    out->storage->channels_last = storage.last;
out:
    ah_dense_out_close(&y);
    ah_dense_close(&factors);
    ah_dense_close(&bias);
    ah_dense_close(&w);
    ah_dense_close(&x);
    return status;
}

/* Gradient and input in one order: channels-last if both are. */
static struct batch_storage batch_pair_storage(const struct ah_batch *b, const struct ah_tensor *gt,
                                               const struct ah_tensor *xt)
{
    struct batch_storage g = batch_storage_of(b, gt), x = batch_storage_of(b, xt);
    bool last = g.last && x.last, rows = g.rows && x.rows && (last || b->pixels == 1);
    return (struct batch_storage){last, rows, rows && g.half && x.half};
}

int ah_cpu_batch_norm_backward(struct ah_call *c)
{
    const struct ah_args_batch_norm_backward *arg = ah_args(c, batch_norm_backward);
    struct ah_tensor *gt = arg->grad.tensor, *xt = arg->input.tensor, *out = c->out[0];
    struct ah_batch b = batch_of(xt);
    struct ah_dense g = {0}, x = {0}, w = {0}, factors = {0};
    struct ah_dense_out gx = {0}, gw = {0}, gb = {0};
    bool training = arg->training.flag;
    struct batch_storage storage = batch_pair_storage(&b, gt, xt);
    int status;
    AH_TRYGO(batch_open(&g, gt, storage), out);
    AH_TRYGO(batch_open(&x, xt, storage), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_scratch(&factors, (size_t)(5 * b.c) * sizeof(double)), out);
    AH_TRYGO(batch_out_open(&gx, out, storage), out);
    AH_TRYGO(ah_dense_out_open(&gw, c->out[1]), out);
    AH_TRYGO(ah_dense_out_open(&gb, c->out[2]), out);
    const void *mean = ah_tensor_data(arg->mean.tensor), *inverse = ah_tensor_data(arg->inverse.tensor);
    if (ah_compute_dtype(xt->dtype) == AH_F32) {
        float *sg = factors.block, *sx = sg + b.c, *ca = sx + b.c, *cb = ca + b.c, *cc = cb + b.c;
        if (storage.rows)
            AH_TRYGO(batch_row_loops(storage)->sums(&b, g.data, x.data, mean, sg, sx), out);
        else
            ah_plane_sums_f32(&b, g.data, x.data, mean, sg, sx);
        ah_norm_backward_factors_f32(&b, inverse, w.data, sg, sx, training, gw.data, gb.data, ca, cb, cc);
        if (storage.rows)
            batch_row_loops(storage)->combine(&b, g.data, x.data, mean, ca, cb, cc, gx.data);
        else
            ah_plane_combine_f32(&b, g.data, x.data, mean, ca, cb, cc, gx.data);
    } else {
        double *sg = factors.block, *sx = sg + b.c, *ca = sx + b.c, *cb = ca + b.c, *cc = cb + b.c;
        ah_plane_sums_f64(&b, g.data, x.data, mean, sg, sx);
        ah_norm_backward_factors_f64(&b, inverse, w.data, sg, sx, training, gw.data, gb.data, ca, cb, cc);
        ah_plane_combine_f64(&b, g.data, x.data, mean, ca, cb, cc, gx.data);
    }
    out->storage->channels_last = storage.last;
out:
    ah_dense_out_close(&gb);
    ah_dense_out_close(&gw);
    ah_dense_out_close(&gx);
    ah_dense_close(&factors);
    ah_dense_close(&w);
    ah_dense_close(&x);
    ah_dense_close(&g);
    return status;
}

static int layer_norm(struct ah_call *c, struct ah_tensor *xt, struct ah_tensor *weight, struct ah_tensor *shift,
                      double eps)
{
    struct ah_tensor *mean = c->extra[0], *inverse = c->extra[1];
    struct ah_dense x = {0}, w = {0}, bias = {0};
    struct ah_dense_out y = {0};
    int64_t rows = mean->numel, width = rows ? xt->numel / rows : 0;
    int status;
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&w, weight), out);
    AH_TRYGO(ah_dense_open(&bias, shift), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    if (ah_compute_dtype(xt->dtype) == AH_F32)
        ah_layer_rows_f32(rows, width, x.data, w.data, bias.data, eps, y.data, ah_tensor_data(mean),
                       ah_tensor_data(inverse));
    else
        ah_layer_rows_f64(rows, width, x.data, w.data, bias.data, eps, y.data, ah_tensor_data(mean),
                       ah_tensor_data(inverse));
out:
    ah_dense_out_close(&y);
    ah_dense_close(&bias);
    ah_dense_close(&w);
    ah_dense_close(&x);
    return status;
}

int ah_cpu_layer_norm(struct ah_call *c)
{
    const struct ah_args_layer_norm *arg = ah_args(c, layer_norm);
    return layer_norm(c, arg->input.tensor, ah_given(&arg->weight), ah_given(&arg->bias), arg->eps.number);
}

/* Of one shape, halves widened. */
static int add_into(struct ah_tensor *sum, struct ah_tensor *a, struct ah_tensor *b)
{
    struct ah_dense x = {0}, y = {0};
    struct ah_dense_out out = {0};
    int status;
    AH_TRYGO(ah_dense_open(&x, a), out);
    AH_TRYGO(ah_dense_open(&y, b), out);
    AH_TRYGO(ah_dense_out_open(&out, sum), out);
    if (ah_compute_dtype(sum->dtype) == AH_F32)
        ah_add_all_f32(sum->numel, x.data, y.data, out.data);
    else
        ah_add_all_f64(sum->numel, x.data, y.data, out.data);
out:
    ah_dense_out_close(&out);
    ah_dense_close(&y);
    ah_dense_close(&x);
    return status;
}

int ah_cpu_add_layer_norm(struct ah_call *c)
{
    const struct ah_args_add_layer_norm *arg = ah_args(c, add_layer_norm);
    AH_TRY(add_into(c->out[1], arg->input.tensor, arg->other.tensor));
    return layer_norm(c, c->out[1], ah_given(&arg->weight), ah_given(&arg->bias), arg->eps.number);
}

int ah_cpu_layer_norm_backward(struct ah_call *c)
{
    const struct ah_args_layer_norm_backward *arg = ah_args(c, layer_norm_backward);
    struct ah_tensor *xt = arg->input.tensor, *mt = arg->mean.tensor;
    struct ah_dense g = {0}, x = {0}, w = {0}, more = {0};
    struct ah_dense_out gx = {0}, gw = {0}, gb = {0};
    int64_t rows = mt->numel, width = rows ? xt->numel / rows : 0;
    bool affine = arg->with_weight.flag;
    int status;
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_open(&more, ah_given(&arg->more)), out);
    AH_TRYGO(ah_dense_out_open(&gx, c->out[0]), out);
    if (affine) {
        AH_TRYGO(ah_dense_out_open(&gw, c->out[1]), out);
        AH_TRYGO(ah_dense_out_open(&gb, c->out[2]), out);
        if (rows == 0) {
            memset(ah_tensor_data(c->out[1]), 0, c->out[1]->storage->nbytes);
            memset(ah_tensor_data(c->out[2]), 0, c->out[2]->storage->nbytes);
            goto out;
        }
    }
    const void *mean = ah_tensor_data(mt), *inverse = ah_tensor_data(arg->inverse.tensor);
    if (ah_compute_dtype(xt->dtype) == AH_F32) {
        ah_layer_rows_backward_f32(rows, width, g.data, x.data, w.data, mean, inverse, gx.data);
        if (more.data)
            ah_add_all_f32(xt->numel, gx.data, more.data, gx.data);
        if (affine)
            status = ah_layer_affine_backward_f32(rows, width, g.data, x.data, mean, inverse, gw.data, gb.data);
        if (c->out[3])
            ah_cast(xt->numel, ah_tensor_data(c->out[3]), c->out[3]->dtype, 1, gx.data, AH_F32, 1);
    } else {
        ah_layer_rows_backward_f64(rows, width, g.data, x.data, w.data, mean, inverse, gx.data);
        if (more.data)
            ah_add_all_f64(xt->numel, gx.data, more.data, gx.data);
        if (affine)
            status = ah_layer_affine_backward_f64(rows, width, g.data, x.data, mean, inverse, gw.data, gb.data);
    }
out:
    ah_dense_out_close(&gb);
    ah_dense_out_close(&gw);
    ah_dense_out_close(&gx);
    ah_dense_close(&more);
    ah_dense_close(&w);
    ah_dense_close(&x);
    ah_dense_close(&g);
    return status;
}
