/* Batch norm and layer norm. Statistics need two passes (mean, then squares about it) in chunks of fixed size; float32
 * in channels-last order has separate loops, the rest uses norm_loops.h. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "cpu/kernels.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"

/* A batch as n x c x pixels; in channels-last order as (n pixels) rows of c. */
struct batch {
    int64_t n, c, pixels;
};

enum { CHUNK_ROWS = 64 };

#define LOOPS "cpu/reduce/norm_loops.h"
#include "cpu/loop/for_reals.h"

/* Batch norm, float32 in channels-last order or with one pixel a plane: rows of channels, summed by chunks. */

/* partial[k] = the sums over chunk k of x - mean squared, or of g and g (x - mean). */
static void deviation_chunk(const float *restrict x, int64_t rows, int64_t c, const float *restrict mean,
                            float *restrict out)
{
    memset(out, 0, (size_t)c * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < c; k++)
            out[k] += (x[i * c + k] - mean[k]) * (x[i * c + k] - mean[k]);
}

static void gradient_chunk(const float *restrict g, const float *restrict x, int64_t rows, int64_t c,
                           const float *restrict mean, float *restrict sum_g, float *restrict sum_gx)
{
    memset(sum_g, 0, (size_t)c * sizeof *sum_g);
    memset(sum_gx, 0, (size_t)c * sizeof *sum_gx);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < c; k++) {
            sum_g[k] += g[i * c + k];
            sum_gx[k] += g[i * c + k] * (x[i * c + k] - mean[k]);
        }
    }
}

static int row_stats(const struct batch *b, const float *x, float *mean, float *variance)
{
    int64_t rows = b->n * b->pixels, c = b->c, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    struct ah_dense partial = {0};
    AH_TRY(ah_column_sum_f32(x, rows, c, mean));
    for (int64_t k = 0; k < c; k++)
        mean[k] /= (float)rows;
    AH_TRY(ah_dense_scratch(&partial, (size_t)(chunks * c) * sizeof(float)));
    float *sums = partial.block;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t from = i * CHUNK_ROWS, count = rows - from < CHUNK_ROWS ? rows - from : CHUNK_ROWS;
        deviation_chunk(x + from * c, count, c, mean, sums + i * c);
    }
    int status = ah_column_sum_f32(sums, chunks, c, variance);
    for (int64_t k = 0; k < c; k++)
        variance[k] /= (float)rows;
    ah_dense_close(&partial);
    return status;
}

static int row_sums(const struct batch *b, const float *g, const float *x, const float *mean, float *sum_g,
                    float *sum_gx)
{
    int64_t rows = b->n * b->pixels, c = b->c, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    struct ah_dense partial = {0};
    AH_TRY(ah_dense_scratch(&partial, (size_t)(2 * chunks * c) * sizeof(float)));
    float *pg = partial.block, *px = pg + chunks * c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t from = i * CHUNK_ROWS, count = rows - from < CHUNK_ROWS ? rows - from : CHUNK_ROWS;
        gradient_chunk(g + from * c, x + from * c, count, c, mean, pg + i * c, px + i * c);
    }
    int status = ah_column_sum_f32(pg, chunks, c, sum_g);
    if (status == 0)
        status = ah_column_sum_f32(px, chunks, c, sum_gx);
    ah_dense_close(&partial);
    return status;
}

static void row_apply(const struct batch *b, const float *restrict x, const float *restrict scale,
                      const float *restrict shift, float *restrict y)
{
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++)
        for (int64_t k = 0; k < c; k++)
            y[i * c + k] = x[i * c + k] * scale[k] + shift[k];
}

static void row_combine(const struct batch *b, const float *restrict g, const float *restrict x,
                        const float *restrict mean, const float *restrict ca, const float *restrict cb,
                        const float *restrict cc, float *restrict gx)
{
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++)
        for (int64_t k = 0; k < c; k++)
            gx[i * c + k] = (g[i * c + k] - cb[k] - (x[i * c + k] - mean[k]) * cc[k]) * ca[k];
}

/* The ops. */

static struct batch batch_of(const struct ah_tensor *t)
{
    struct batch b = {t->size[0], t->size[1], 1};
    for (int d = 2; d < t->ndim; d++)
        b.pixels *= t->size[d];
    return b;
}

/* Planes of one pixel in row-major order are rows of channels. */
static bool are_rows(const struct batch *b, const struct ah_tensor *t)
{
    return b->pixels == 1 && ah_compute_dtype(t->dtype) == AH_F32;
}

/* The running statistics move towards the batch's; the variance that is kept is the unbiased one. */
static void update_running(struct ah_call *c, const struct batch *b, double momentum)
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
static int batch_stats(struct ah_call *c, const struct batch *b, const void *x, bool rows)
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
    if (rows)
        AH_TRY(row_stats(b, x, ah_tensor_data(mean), ah_tensor_data(variance)));
    else if (mean->dtype == AH_F32)
        plane_stats_f32(b, x, ah_tensor_data(mean), ah_tensor_data(variance));
    else
        plane_stats_f64(b, x, ah_tensor_data(mean), ah_tensor_data(variance));
    update_running(c, b, arg->momentum.number);
    return 0;
}

int ah_cpu_batch_norm(struct ah_call *c)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0];
    struct batch b = batch_of(xt);
    bool last = xt->storage->channels_last && xt->dtype == AH_F32, rows = last || are_rows(&b, xt);
    struct ah_dense x = {0}, w = {0}, bias = {0}, factors = {0};
    struct ah_dense_out y = {0};
    int status;
    if (out->numel == 0)
        return 0;
    if (last)
        x.data = ah_tensor_data(xt);
    else
        AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_open(&bias, arg->bias.tensor), out);
    AH_TRYGO(ah_dense_scratch(&factors, (size_t)(2 * b.c) * sizeof(double)), out);
    AH_TRYGO(batch_stats(c, &b, x.data, rows), out);
    for (int64_t k = 0; k < b.c; k++) {
        double variance = ah_tensor_get(c->extra[1], k);
        ah_tensor_set(c->extra[1], k, 1 / sqrt(variance + arg->eps.number));
    }
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    const void *mean = ah_tensor_data(c->extra[0]), *inverse = ah_tensor_data(c->extra[1]);
    if (ah_compute_dtype(xt->dtype) == AH_F32) {
        float *scale = factors.block, *shift = scale + b.c;
        affine_factors_f32(b.c, mean, inverse, w.data, bias.data, scale, shift);
        if (rows)
            row_apply(&b, x.data, scale, shift, y.data);
        else
            plane_apply_f32(&b, x.data, scale, shift, y.data);
    } else {
        double *scale = factors.block, *shift = scale + b.c;
        affine_factors_f64(b.c, mean, inverse, w.data, bias.data, scale, shift);
        plane_apply_f64(&b, x.data, scale, shift, y.data);
    }
    out->storage->channels_last = last;
out:
    ah_dense_out_close(&y);
    ah_dense_close(&factors);
    ah_dense_close(&bias);
    ah_dense_close(&w);
    ah_dense_close(&x);
    return status;
}

/* Gradient and input in one order: channels-last if the input is. */
static int batch_pair_open(struct ah_dense *g, struct ah_dense *x, struct ah_tensor *gt, struct ah_tensor *xt,
                           bool *last)
{
    *last = xt->storage->channels_last && gt->storage->channels_last && xt->dtype == AH_F32 && gt->dtype == AH_F32;
    if (*last) {
        g->data = ah_tensor_data(gt);
        x->data = ah_tensor_data(xt);
        return 0;
    }
    AH_TRY(ah_dense_open(g, gt));
    return ah_dense_open(x, xt);
}

int ah_cpu_batch_norm_backward(struct ah_call *c)
{
    const struct ah_args_batch_norm_backward *arg = ah_args(c, batch_norm_backward);
    struct ah_tensor *gt = arg->grad.tensor, *xt = arg->input.tensor, *out = c->out[0];
    struct batch b = batch_of(xt);
    struct ah_dense g = {0}, x = {0}, w = {0}, factors = {0};
    struct ah_dense_out gx = {0}, gw = {0}, gb = {0};
    bool last = false, training = arg->training.flag;
    int status;
    AH_TRYGO(batch_pair_open(&g, &x, gt, xt, &last), out);
    bool rows = last || are_rows(&b, xt);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_scratch(&factors, (size_t)(5 * b.c) * sizeof(double)), out);
    AH_TRYGO(ah_dense_out_open(&gx, out), out);
    AH_TRYGO(ah_dense_out_open(&gw, c->out[1]), out);
    AH_TRYGO(ah_dense_out_open(&gb, c->out[2]), out);
    const void *mean = ah_tensor_data(arg->mean.tensor), *inverse = ah_tensor_data(arg->inverse.tensor);
    if (ah_compute_dtype(xt->dtype) == AH_F32) {
        float *sg = factors.block, *sx = sg + b.c, *ca = sx + b.c, *cb = ca + b.c, *cc = cb + b.c;
        if (rows)
            AH_TRYGO(row_sums(&b, g.data, x.data, mean, sg, sx), out);
        else
            plane_sums_f32(&b, g.data, x.data, mean, sg, sx);
        backward_factors_f32(&b, inverse, w.data, sg, sx, training, gw.data, gb.data, ca, cb, cc);
        if (rows)
            row_combine(&b, g.data, x.data, mean, ca, cb, cc, gx.data);
        else
            plane_combine_f32(&b, g.data, x.data, mean, ca, cb, cc, gx.data);
    } else {
        double *sg = factors.block, *sx = sg + b.c, *ca = sx + b.c, *cb = ca + b.c, *cc = cb + b.c;
        plane_sums_f64(&b, g.data, x.data, mean, sg, sx);
        backward_factors_f64(&b, inverse, w.data, sg, sx, training, gw.data, gb.data, ca, cb, cc);
        plane_combine_f64(&b, g.data, x.data, mean, ca, cb, cc, gx.data);
    }
    out->storage->channels_last = last;
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
        layer_rows_f32(rows, width, x.data, w.data, bias.data, eps, y.data, ah_tensor_data(mean),
                       ah_tensor_data(inverse));
    else
        layer_rows_f64(rows, width, x.data, w.data, bias.data, eps, y.data, ah_tensor_data(mean),
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
        add_all_f32(sum->numel, x.data, y.data, out.data);
    else
        add_all_f64(sum->numel, x.data, y.data, out.data);
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
        layer_rows_backward_f32(rows, width, g.data, x.data, w.data, mean, inverse, gx.data);
        if (more.data)
            add_all_f32(xt->numel, gx.data, more.data, gx.data);
        if (affine)
            status = layer_affine_backward_f32(rows, width, g.data, x.data, mean, inverse, gw.data, gb.data);
        if (c->out[3])
            ah_cast(xt->numel, ah_tensor_data(c->out[3]), c->out[3]->dtype, 1, gx.data, AH_F32, 1);
    } else {
        layer_rows_backward_f64(rows, width, g.data, x.data, w.data, mean, inverse, gx.data);
        if (more.data)
            add_all_f64(xt->numel, gx.data, more.data, gx.data);
        if (affine)
            status = layer_affine_backward_f64(rows, width, g.data, x.data, mean, inverse, gw.data, gb.data);
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
