/* Batch norm and layer norm: tensors as the arrays of norm.h, in the order in which they are stored. */
#include <math.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/layout.h"
#include "cpu/reduce/norm_storage.h"
#include "cpu/reduce/planes.h"
#include "ops/dispatch/op.h"

/* The ops. */

/* Row-major planes: n x c x pixels items of `dtype`; factors of each channel are of the dtype that is computed in. */
struct batch_planes {
    const struct ah_batch *b;
    const struct ah_plane_loops *loops;
    enum ah_dtype dtype, real;
};

static struct batch_planes batch_planes_of(const struct ah_batch *b, const struct ah_norm_storage *s)
{
    return (struct batch_planes){b, ah_plane_loops(s->dtype), s->dtype, ah_compute_dtype(s->dtype)};
}

static size_t plane_at(const struct batch_planes *p, int64_t plane)
{
    return (size_t)(plane * p->b->pixels) * ah_dtype_size(p->dtype);
}

static double factor_at(const struct batch_planes *p, const void *factors, int64_t channel)
{
    return p->real == AH_F64 ? ((const double *)factors)[channel] : (double)((const float *)factors)[channel];
}

static void factor_set(const struct batch_planes *p, void *factors, int64_t channel, double value)
{
    if (p->real == AH_F64)
        ((double *)factors)[channel] = value;
    else
        ((float *)factors)[channel] = (float)value;
}

static void plane_stats(const struct batch_planes *p, const char *x, void *mean, void *variance)
{
    const struct ah_batch *b = p->b;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->c * b->pixels, AH_SHARE_MIDDLE))
    for (int64_t k = 0; k < b->c; k++) {
        struct ah_moments m = {0};
        for (int64_t n = 0; n < b->n; n++)
            ah_moments_add(&m, p->loops->moments(b->pixels, x + plane_at(p, n * b->c + k)));
        factor_set(p, mean, k, m.mean);
        factor_set(p, variance, k, m.squares / (double)(b->n * b->pixels));
    }
}

static void plane_apply(const struct batch_planes *p, const char *x, const void *scale, const void *shift, char *y)
{
    const struct ah_batch *b = p->b;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->c * b->pixels, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->c; i++) {
        size_t at = plane_at(p, i);
        p->loops->apply(b->pixels, x + at, 0, factor_at(p, scale, i % b->c), factor_at(p, shift, i % b->c), y + at);
    }
}

static void plane_sums(const struct batch_planes *p, const char *g, const char *x, const void *mean, void *sum_g,
                       void *sum_gx)
{
    const struct ah_batch *b = p->b;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->c * b->pixels, AH_SHARE_MIDDLE))
    for (int64_t k = 0; k < b->c; k++) {
        double total_g = 0, total_gx = 0;
        for (int64_t n = 0; n < b->n; n++) {
            size_t at = plane_at(p, n * b->c + k);
            p->loops->sums(b->pixels, g + at, x + at, factor_at(p, mean, k), &total_g, &total_gx);
        }
        factor_set(p, sum_g, k, total_g);
        factor_set(p, sum_gx, k, total_gx);
    }
}

/* gx = ca (g - cb - (x - mean) cc): differences first, so that a mean far from 0 costs no digits. */
static void plane_combine(const struct batch_planes *p, const char *g, const char *x, const void *mean, const void *ca,
                          const void *cb, const void *cc, char *gx)
{
    const struct ah_batch *b = p->b;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->c * b->pixels, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->c; i++) {
        size_t at = plane_at(p, i);
        int64_t k = i % b->c;
        const struct ah_plane_gradient f = {.w = 1, .sum = factor_at(p, cb, k), .mean = factor_at(p, mean, k),
                                            .along = factor_at(p, cc, k), .inverse = factor_at(p, ca, k)};
        p->loops->combine(b->pixels, g + at, x + at, &f, gx + at);
    }
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
static int batch_stats(struct ah_call *c, const struct batch_planes *planes, const void *x,
                       const struct ah_norm_storage *storage)
{
    const struct ah_batch *b = planes->b;
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *mean = c->extra[0], *variance = c->extra[1];
    if (!arg->training.flag) {
        for (int64_t k = 0; k < b->c; k++) {
            ah_tensor_set(mean, k, ah_tensor_get(arg->running_mean.tensor, k));
            ah_tensor_set(variance, k, ah_tensor_get(arg->running_var.tensor, k));
        }
        return 0;
    }
    if (storage->rows)
        AH_TRY(ah_row_loops(storage->dtype)->stats(b, x, ah_tensor_data(mean), ah_tensor_data(variance)));
    else
        plane_stats(planes, x, ah_tensor_data(mean), ah_tensor_data(variance));
    update_running(c, b, arg->momentum.number);
    return 0;
}

/* The arguments are batch_norm's and, where it is followed by relu, `other`. */
static int batch_norm_run(struct ah_call *c, bool relu, struct ah_tensor *other)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0];
    struct ah_batch b = ah_batch_of(xt);
    struct ah_norm_storage storage = ah_norm_storage(xt, NULL);
    struct batch_planes planes = batch_planes_of(&b, &storage);
    if (out->numel == 0)
        return 0;
    struct ah_arrays a = {0};
    const void *x = ah_norm_open(&a, xt, &storage), *w = ah_array_in(&a, arg->weight.tensor);
    const void *bias = ah_array_in(&a, arg->bias.tensor);
    bool half = relu && xt->dtype == AH_BF16;
    const void *addend = other ? ah_array_nhwc(&a, other, half) : NULL;
    size_t channels = (size_t)b.c * ah_dtype_size(c->extra[0]->dtype);
    void *scale = ah_array_scratch(&a, channels), *shift = ah_array_scratch(&a, channels);
    void *y = ah_norm_out_open(&a, out, &storage);
    if (a.status == 0)
        a.status = batch_stats(c, &planes, x, &storage);
    if (a.status < 0)
        return ah_arrays_close(&a);
    for (int64_t k = 0; k < b.c; k++) {
        double variance = ah_tensor_get(c->extra[1], k);
        ah_tensor_set(c->extra[1], k, 1 / sqrt(variance + arg->eps.number));
    }
    const void *mean = ah_tensor_data(c->extra[0]), *inverse = ah_tensor_data(c->extra[1]);
    AH_BY_REAL(xt->dtype, ah_norm_affine_factors, b.c, mean, inverse, w, bias, scale, shift);
    if (relu)
        ah_norm_relu_apply(&b, half, x, scale, shift, addend, y);
    else if (storage.rows)
        ah_row_loops(storage.dtype)->apply(&b, x, scale, shift, y);
    else
        plane_apply(&planes, x, scale, shift, y);
    out->storage->channels_last = storage.last;
    return ah_arrays_close(&a);
}

AH_CPU_OP(batch_norm, batch_norm_run(c, false, NULL))
AH_CPU_OP(batch_norm_relu, batch_norm_run(c, true, ah_given(&ah_args(c, batch_norm_relu)->other)))

int ah_cpu_batch_norm_backward(struct ah_call *c)
{
    const struct ah_args_batch_norm_backward *arg = ah_args(c, batch_norm_backward);
    struct ah_tensor *gt = arg->grad.tensor, *xt = arg->input.tensor, *out = c->out[0];
    struct ah_batch b = ah_batch_of(xt);
    struct ah_arrays a = {0};
    struct ah_norm_storage storage = ah_norm_storage(xt, gt);
    struct batch_planes planes = batch_planes_of(&b, &storage);
    const void *g = ah_norm_open(&a, gt, &storage), *x = ah_norm_open(&a, xt, &storage);
    const void *w = ah_array_in(&a, arg->weight.tensor);
    void *factor[5]; /* the sums of g and g (x - mean), the factors of plane_combine */
    for (int i = 0; i < 5; i++)
        factor[i] = ah_array_scratch(&a, (size_t)b.c * sizeof(double));
    void *sg = factor[0], *sx = factor[1], *ca = factor[2], *cb = factor[3], *cc = factor[4];
    void *gx = ah_norm_out_open(&a, out, &storage);
    void *gw = ah_array_out(&a, c->out[1]), *gb = ah_array_out(&a, c->out[2]);
    const void *mean = ah_tensor_data(arg->mean.tensor), *inverse = ah_tensor_data(arg->inverse.tensor);
    if (a.status == 0 && storage.rows)
        a.status = ah_row_loops(storage.dtype)->sums(&b, g, x, mean, sg, sx);
    else if (a.status == 0)
        plane_sums(&planes, g, x, mean, sg, sx);
    if (a.status < 0)
        return ah_arrays_close(&a);
    AH_BY_REAL(xt->dtype, ah_norm_backward_factors, &b, inverse, w, sg, sx, arg->training.flag, gw, gb, ca, cb, cc);
    if (storage.rows)
        ah_row_loops(storage.dtype)->combine(&b, g, x, mean, ca, cb, cc, gx);
    else
        plane_combine(&planes, g, x, mean, ca, cb, cc, gx);
    out->storage->channels_last = storage.last;
    return ah_arrays_close(&a);
}

/* A result of images, of the type of items that the kernel writes. */
static void *images_out(struct ah_arrays *a, struct ah_tensor *out, bool half)
{
    out->storage->channels_last = true;
    return half ? ah_tensor_data(out) : ah_array_out(a, out);
}

int ah_cpu_batch_norm_relu_backward(struct ah_call *c)
{
    const struct ah_args_batch_norm_relu_backward *arg = ah_args(c, batch_norm_relu_backward);
    struct ah_tensor *xt = arg->input.tensor;
    struct ah_batch b = ah_batch_of(xt);
    struct ah_arrays a = {0};
    bool other = arg->with_other.flag, half = xt->dtype == AH_BF16;
    const void *g = ah_array_nhwc(&a, arg->grad.tensor, half), *x = ah_array_nhwc(&a, xt, half);
    const void *y = other ? ah_array_nhwc(&a, arg->output.tensor, half) : x; /* else unread */
    const float *w = ah_array_in(&a, arg->weight.tensor), *bias = ah_array_in(&a, arg->bias.tensor);
    float *scale = ah_array_scratch(&a, 7 * (size_t)b.c * sizeof(float));
    void *gx = images_out(&a, c->out[0], half), *masked = other ? images_out(&a, c->out[3], half) : NULL;
    float *gw = ah_array_out(&a, c->out[1]), *gb = ah_array_out(&a, c->out[2]);
    const float *mean = ah_tensor_data(arg->mean.tensor), *inverse = ah_tensor_data(arg->inverse.tensor);
    if (a.status < 0)
        return ah_arrays_close(&a);
    float *shift = scale + b.c, *sg = shift + b.c, *sx = sg + b.c, *ca = sx + b.c, *cb = ca + b.c, *cc = cb + b.c;
    ah_norm_affine_factors_f32(b.c, mean, inverse, w, bias, scale, shift);
    a.status = ah_norm_relu_sums(&b, half, g, x, y, mean, scale, shift, masked, sg, sx);
    if (a.status < 0)
        return ah_arrays_close(&a);
    ah_norm_backward_factors_f32(&b, inverse, w, sg, sx, arg->training.flag, gw, gb, ca, cb, cc);
    const struct ah_norm_relu_factors factors = {mean, scale, shift, ca, cb, cc};
    if (other)
        ah_row_loops(xt->dtype)->combine(&b, masked, x, mean, ca, cb, cc, gx);
    else
        ah_norm_relu_combine(&b, half, g, x, &factors, gx);
    return ah_arrays_close(&a);
}

/* Set the sizes and the room for rows that are converted. */
static void layer_open(struct ah_layer *l, struct ah_arrays *a, const struct ah_tensor *x, const struct ah_tensor *mean)
{
    l->rows = mean->numel;
    l->width = l->rows ? x->numel / l->rows : 0;
    size_t row = (size_t)l->width * ah_dtype_size(mean->dtype);
    l->room = ah_array_scratch(a, (size_t)ah_num_threads() * AH_LAYER_ROOM * row);
}

static int layer_norm(struct ah_call *c, struct ah_tensor *xt, struct ah_tensor *other, struct ah_tensor *weight,
                      struct ah_tensor *shift, double eps)
{
    struct ah_arrays a = {0};
    struct ah_layer l = {.eps = eps, .mean = ah_tensor_data(c->extra[0]), .inverse = ah_tensor_data(c->extra[1])};
    layer_open(&l, &a, xt, c->extra[0]);
    l.x = ah_items_in(&a, xt);
    l.other = ah_items_in(&a, other);
    l.sum = ah_items_out(other ? c->out[1] : NULL);
    l.out = ah_items_out(c->out[0]);
    l.w = ah_array_in(&a, weight);
    l.bias = ah_array_in(&a, shift);
    if (a.status == 0)
        AH_BY_REAL(c->extra[0]->dtype, ah_layer_forward, &l);
    return ah_arrays_close(&a);
}

AH_CPU_OP_WITH(layer_norm, layer_norm,
               layer_norm(c, arg->input.tensor, NULL, ah_given(&arg->weight), ah_given(&arg->bias), arg->eps.number))
AH_CPU_OP_WITH(add_layer_norm, add_layer_norm,
               layer_norm(c, arg->input.tensor, arg->other.tensor, ah_given(&arg->weight), ah_given(&arg->bias),
                          arg->eps.number))

int ah_cpu_layer_norm_backward(struct ah_call *c)
{
    const struct ah_args_layer_norm_backward *arg = ah_args(c, layer_norm_backward);
    struct ah_tensor *xt = arg->input.tensor;
    bool affine = arg->with_weight.flag;
    struct ah_arrays a = {0};
    struct ah_layer l = {.mean = ah_tensor_data(arg->mean.tensor), .inverse = ah_tensor_data(arg->inverse.tensor)};
    layer_open(&l, &a, xt, arg->mean.tensor);
    l.grad = ah_items_in(&a, arg->grad.tensor);
    l.x = ah_items_in(&a, xt);
    l.more = ah_items_in(&a, ah_given(&arg->more));
    l.out = ah_items_out(c->out[0]);
    l.also = ah_items_out(c->out[3]);
    l.w = ah_array_in(&a, arg->weight.tensor);
    if (affine && l.rows == 0) /* gradients of zeros */
        l.width = c->out[1]->numel;
    void *gw = affine ? ah_array_out(&a, c->out[1]) : NULL, *gb = affine ? ah_array_out(&a, c->out[2]) : NULL;
    if (a.status == 0)
        a.status = AH_BY_REAL(xt->dtype, ah_layer_backward, &l, gw, gb);
    return ah_arrays_close(&a);
}
