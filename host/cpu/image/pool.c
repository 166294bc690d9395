/* Pooling kernels: tensors as the arrays of pool.h, in whose order they are stored. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/image/pool.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/layout.h"
#include "ops/dispatch/op.h"

static int max_geometry(struct ah_window *s, const struct ah_call *c, const int64_t *size, int ndim, int at)
{
    return ah_window_geometry(s, c->op->name, size, ndim, &c->arg[at], &c->arg[at + 1], &c->arg[at + 2],
                              &c->arg[at + 3], c->arg[at + 4].flag);
}

/* Places travel as int32 in the loops over planes and rest as bytes where they fit. */
static void pack_places(struct ah_tensor *place, const int32_t *from)
{
    if (place->dtype == AH_I32) {
        memcpy(ah_tensor_data(place), from, (size_t)place->numel * sizeof *from);
        return;
    }
    uint8_t *to = ah_tensor_data(place);
    for (int64_t i = 0; i < place->numel; i++)
        to[i] = (uint8_t)from[i];
}

static void unpack_places(int32_t *to, const struct ah_tensor *place)
{
    const uint8_t *from = ah_tensor_data(place);
    if (place->dtype == AH_I32)
        memcpy(to, from, (size_t)place->numel * sizeof *to);
    else
        for (int64_t i = 0; i < place->numel; i++)
            to[i] = from[i];
}

static void flat_indices(const struct ah_window *s, const int32_t *place, int64_t *index)
{
    for (int64_t i = 0; i < s->n * s->c * s->oh * s->ow; i++) {
        int64_t o = i % (s->oh * s->ow);
        int64_t iy = o / s->ow * s->stride[0] - s->padding[0] + place[i] / s->kernel[1] * s->dilation[0];
        int64_t ix = o % s->ow * s->stride[1] - s->padding[1] + place[i] % s->kernel[1] * s->dilation[1];
        index[i] = iy * s->w + ix;
    }
}

/* Report whether the channels-last loops, of float32 and halves, read the input. */
static bool pool_is_last(const struct ah_tensor *t)
{
    return t->storage->channels_last && ah_compute_dtype(t->dtype) == AH_F32;
}

static int max_last(const struct ah_window *s, struct ah_tensor *xt, struct ah_tensor *out, struct ah_tensor *place)
{
    struct ah_dense rows = {0};
    void *code = place ? ah_tensor_data(place) : NULL;
    AH_TRY(ah_dense_scratch(&rows, (size_t)(ah_num_threads() * s->oh * s->ow * s->c) * ah_dtype_size(xt->dtype)));
    if (xt->dtype == AH_F32)
        ah_max_last_f32(s, ah_tensor_data(xt), INFINITY, ah_tensor_data(out), code, rows.block);
    else
        ah_max_last_16(s, ah_tensor_data(xt), xt->dtype == AH_BF16 ? 0x7f80 : 0x7c00, ah_tensor_data(out), code,
                    rows.block);
    ah_dense_close(&rows);
    if (place)
        place->storage->channels_last = true;
    return 0;
}

int ah_cpu_max_pool2d(struct ah_call *c)
{
    const struct ah_args_max_pool2d *arg = ah_args(c, max_pool2d);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0], *place = c->extra[0];
    struct ah_window s;
    AH_TRY(max_geometry(&s, c, xt->size, xt->ndim, 1));
    if (pool_is_last(xt) && !arg->return_indices.flag && ah_window_fits_byte(&s))
        return max_last(&s, xt, out, place);
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, xt);
    void *y = ah_array_out(&a, out), *wide = place ? ah_array_scratch(&a, (size_t)out->numel * sizeof(int32_t)) : NULL;
    if (a.status == 0) {
        AH_BY_REAL(xt->dtype, ah_max_planes, &s, x, y, wide);
        if (place)
            pack_places(place, wide);
        if (arg->return_indices.flag)
            flat_indices(&s, wide, ah_tensor_data(c->out[1]));
    }
    return ah_arrays_close(&a);
}

/* A window entirely in the padding has no position: it is the first of the plane. */
int ah_cpu_max_pool2d_positions(struct ah_call *c)
{
    const struct ah_args_max_pool2d_positions *arg = ah_args(c, max_pool2d_positions);
    const struct ah_tensor *place = arg->place.tensor;
    struct ah_window s;
    AH_CLEANUP(ah_dense_close) struct ah_dense wide = {0};
    AH_TRY(max_geometry(&s, c, arg->input_size.ints.at, arg->input_size.ints.count, 2));
    AH_TRY(ah_dense_scratch(&wide, (size_t)place->numel * sizeof(int32_t)));
    int64_t *index = ah_tensor_data(c->out[0]);
    unpack_places(wide.block, place);
    flat_indices(&s, wide.block, index);
    for (int64_t i = 0; i < place->numel; i++)
        if (index[i] < 0 || index[i] >= s.h * s.w)
            index[i] = 0;
    return 0;
}

/* Sum halves of windows that overlap in float32, image by image, and round once. */
static int max_last_backward_widened(const struct ah_window *s, const int16_t *g, enum ah_dtype dtype,
                                     const uint8_t *place, int16_t *gx)
{
    int64_t size = s->oh * s->ow * s->c, plane = s->h * s->w * s->c;
    AH_CLEANUP(ah_dense_close) struct ah_dense images = {0};
    AH_TRY(ah_dense_scratch(&images, (size_t)(ah_num_threads() * (size + plane)) * sizeof(float)));
    float *image = images.block;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * size, AH_SHARE_HEAVY))
    for (int64_t n = 0; n < s->n; n++) {
        float *from = image + ah_thread_index() * (size + plane), *to = from + size;
        ah_cast(size, from, AH_F32, 1, g + n * size, dtype, 1);
        ah_max_image_backward_f32(s, from, place + n * size, to);
        ah_cast(plane, gx + n * plane, dtype, 1, to, AH_F32, 1);
    }
    return 0;
}

static int max_last_backward(const struct ah_window *s, struct ah_tensor *gt, struct ah_tensor *place,
                             struct ah_tensor *out)
{
    bool half = gt->dtype != AH_F32;
    const uint8_t *code = ah_tensor_data(place);
    AH_CLEANUP(ah_dense_close) struct ah_dense g = {0};
    AH_TRY(ah_nhwc_open(&g, gt, half));
    if (!half)
        ah_max_last_backward_f32(s, g.data, code, ah_tensor_data(out));
    else if (ah_window_is_apart(s))
        ah_max_last_backward_16(s, g.data, code, ah_tensor_data(out));
    else
        AH_TRY(max_last_backward_widened(s, g.data, gt->dtype, code, ah_tensor_data(out)));
    out->storage->channels_last = true;
    return 0;
}

int ah_cpu_max_pool2d_backward(struct ah_call *c)
{
    const struct ah_args_max_pool2d_backward *arg = ah_args(c, max_pool2d_backward);
    struct ah_tensor *gt = arg->grad.tensor, *place = arg->place.tensor, *out = c->out[0];
    struct ah_window s;
    AH_TRY(max_geometry(&s, c, arg->input_size.ints.at, arg->input_size.ints.count, 3));
    if (place->storage->channels_last && ah_compute_dtype(gt->dtype) == AH_F32)
        return max_last_backward(&s, gt, place, out);
    AH_TRY(ah_tensor_row_major(place));
    struct ah_arrays a = {0};
    const void *g = ah_array_in(&a, gt);
    void *wide = ah_array_scratch(&a, (size_t)place->numel * sizeof(int32_t)), *gx = ah_array_out(&a, out);
    if (a.status == 0) {
        unpack_places(wide, place);
        AH_BY_REAL(gt->dtype, ah_max_planes_backward, &s, g, wide, gx);
    }
    return ah_arrays_close(&a);
}

static int pool_mean(struct ah_call *c, const struct ah_window *s, const struct ah_rectangles *r, bool backward)
{
    struct ah_tensor *in = c->arg[0].tensor;
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, in);
    void *y = ah_array_out(&a, c->out[0]);
    if (a.status == 0 && backward)
        AH_BY_REAL(in->dtype, ah_mean_planes_backward, s, r, x, y);
    else if (a.status == 0)
        AH_BY_REAL(in->dtype, ah_mean_planes, s, r, x, y);
    return ah_arrays_close(&a);
}

static int window_mean(struct ah_call *c, const int64_t *size, int ndim, int at, bool backward)
{
    struct ah_window s;
    AH_TRY(ah_window_geometry(&s, c->op->name, size, ndim, &c->arg[at], &c->arg[at + 1], &c->arg[at + 2], NULL,
                              c->arg[at + 3].flag));
    const struct ah_value *divisor = &c->arg[at + 5];
    struct ah_rectangles r = {.count_padding = c->arg[at + 4].flag,
                           .divisor = divisor->kind == AH_NONE ? 0 : divisor->integer};
    return pool_mean(c, &s, &r, backward);
}

AH_CPU_OP_WITH(avg_pool2d, avg_pool2d, window_mean(c, arg->input.tensor->size, arg->input.tensor->ndim, 1, false))
AH_CPU_OP_WITH(avg_pool2d_backward, avg_pool2d_backward,
               window_mean(c, arg->input_size.ints.at, arg->input_size.ints.count, 2, true))

static int adaptive_mean(struct ah_call *c, const int64_t *in, const int64_t *out, int ndim, bool backward)
{
    struct ah_window s = {.n = ndim == 4 ? in[0] : 1, .c = in[ndim - 3], .h = in[ndim - 2], .w = in[ndim - 1],
                          .oh = out[ndim - 2], .ow = out[ndim - 1]};
    struct ah_rectangles r = {.adaptive = s.oh == 0 || s.ow == 0 || s.h % s.oh || s.w % s.ow};
    for (int d = 0; d < 2 && !r.adaptive; d++) /* equal parts: windows side by side */
        s.kernel[d] = s.stride[d] = d ? s.w / s.ow : s.h / s.oh;
    return pool_mean(c, &s, &r, backward);
}

int ah_cpu_adaptive_avg_pool2d(struct ah_call *c)
{
    const struct ah_tensor *in = ah_args(c, adaptive_avg_pool2d)->input.tensor, *out = c->out[0];
    return adaptive_mean(c, in->size, out->size, out->ndim, false);
}

int ah_cpu_adaptive_avg_pool2d_backward(struct ah_call *c)
{
    const struct ah_tensor *grad = ah_args(c, adaptive_avg_pool2d_backward)->grad.tensor, *out = c->out[0];
    return adaptive_mean(c, out->size, grad->size, out->ndim, true);
}
