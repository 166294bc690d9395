/* Pooling kernels: maxima of float32 and halves in channels-last order many channels at a time (pool_last_loops.h),
 * everything else plane by plane (pool_loops.h). Windows are walked only inside the input, so their cost is that of the
 * covered elements. Byte places, and with them `struct taps`, are for windows that fit (ah_window_fits_byte). */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/layout.h"
#include "ops/nn/pool.h"
#include "tensor/transpose.h"

/* The elements that an output pixel averages. Adaptive: rectangles that share out the input. Else: the window's part
 * inside the input, divided by its size with or without the padding, or by a given number. */
struct rectangles {
    bool adaptive, count_padding;
    int64_t divisor; /* 0: none given */
};

struct rectangle {
    int64_t y0, y1, x0, x1, divisor;
};

static int64_t pool_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The taps of a window that are inside the input, along one dim: a window may be far larger than the input. */
struct reach {
    int64_t first, end;
};

static struct reach reach_of(int64_t start, int64_t kernel, int64_t dilation, int64_t n)
{
    struct reach r = {start < 0 ? (-start + dilation - 1) / dilation : 0, kernel};
    if (start + (kernel - 1) * dilation >= n)
        r.end = start < n ? (n - start + dilation - 1) / dilation : 0;
    return r;
}

static struct rectangle rectangle_at(const struct ah_window *s, const struct rectangles *r, int64_t oy, int64_t ox)
{
    struct rectangle a;
    if (r->adaptive) {
        a.y0 = oy * s->h / s->oh;
        a.y1 = ((oy + 1) * s->h + s->oh - 1) / s->oh;
        a.x0 = ox * s->w / s->ow;
        a.x1 = ((ox + 1) * s->w + s->ow - 1) / s->ow;
        a.divisor = (a.y1 - a.y0) * (a.x1 - a.x0);
        return a;
    }
    a.y0 = oy * s->stride[0] - s->padding[0];
    a.x0 = ox * s->stride[1] - s->padding[1];
    a.y1 = pool_least(a.y0 + s->kernel[0], s->h + s->padding[0]);
    a.x1 = pool_least(a.x0 + s->kernel[1], s->w + s->padding[1]);
    int64_t padded = (a.y1 - a.y0) * (a.x1 - a.x0);
    a.y0 = a.y0 < 0 ? 0 : a.y0;
    a.x0 = a.x0 < 0 ? 0 : a.x0;
    a.y1 = pool_least(a.y1, s->h);
    a.x1 = pool_least(a.x1, s->w);
    a.divisor = r->divisor ? r->divisor : r->count_padding ? padded : (a.y1 - a.y0) * (a.x1 - a.x0);
    return a;
}

#define LOOPS "cpu/image/pool_loops.h"
#include "cpu/loop/for_reals.h"

/* Maximum, channels-last. */

/* Sixteen channels at a time, of halves 32: the compiler alone vectorises over the window, by gathers. */
typedef float floats __attribute__((vector_size(64)));
typedef int32_t ints __attribute__((vector_size(64)));
typedef int16_t shorts __attribute__((vector_size(64)));
typedef uint8_t bytes __attribute__((vector_size(16)));
typedef uint8_t many_bytes __attribute__((vector_size(32)));

/* The positions of one window that are inside the input: the offset of each from the image's start, and its code. Only
 * for windows whose codes fit a byte. */
struct taps {
    int count;
    int64_t offset[AH_BYTE_PLACES];
    uint8_t code[AH_BYTE_PLACES];
};

/* Is the window that begins at (top, left) inside the input as a whole? Then its taps are those of any other. */
static inline bool is_inside(const struct ah_window *s, int64_t top, int64_t left)
{
    return top >= 0 && left >= 0 && top + (s->kernel[0] - 1) * s->dilation[0] < s->h &&
           left + (s->kernel[1] - 1) * s->dilation[1] < s->w;
}

static void taps_at(const struct ah_window *s, int64_t top, int64_t left, struct taps *taps)
{
    struct reach rows = reach_of(top, s->kernel[0], s->dilation[0], s->h);
    struct reach columns = reach_of(left, s->kernel[1], s->dilation[1], s->w);
    taps->count = 0;
    for (int64_t i = rows.first; i < rows.end; i++) {
        for (int64_t j = columns.first; j < columns.end; j++) {
            int64_t iy = top + i * s->dilation[0], ix = left + j * s->dilation[1];
            taps->offset[taps->count] = (iy * s->w + ix) * s->c;
            taps->code[taps->count++] = (uint8_t)(i * s->kernel[1] + j);
        }
    }
}

/* Report whether no two windows read the same position. */
static bool pool_is_apart(const struct ah_window *s)
{
    return s->dilation[0] == 1 && s->dilation[1] == 1 && s->stride[0] >= s->kernel[0] && s->stride[1] >= s->kernel[1];
}

/* Report whether every position is in exactly one window. */
static bool pool_covers(const struct ah_window *s)
{
    return pool_is_apart(s) && s->stride[0] == s->kernel[0] && s->stride[1] == s->kernel[1] &&
           s->oh * s->stride[0] - s->padding[0] >= s->h && s->ow * s->stride[1] - s->padding[1] >= s->w;
}

#define ITEM float
#define ITEMS floats
#define MASKS ints
#define CODES bytes
#define LANES 16
#define LAST(name) name##_f32
#define LAST_KEY(x, infinity) (x)
#define LAST_KEYS(x, infinity) (x)
#define LAST_NAN(key) ((key) != (key))
#define LAST_LEAST(infinity) (-(infinity))
#define LAST_TRANSPOSE ah_transpose_f32
#include "cpu/image/pool_last_loops.h"

/* Return the integer by which a half is compared: -x for a negative number whose other bits are x, so that both zeros
 * are equal, and the largest one for NaN. */
static inline int16_t pool_half_key(int16_t bits, int16_t infinity)
{
    int16_t sign = (int16_t)(bits >> 15), size = bits & INT16_MAX;
    return size > infinity ? INT16_MAX : (int16_t)((size ^ sign) - sign);
}

static inline shorts pool_half_keys(shorts bits, int16_t infinity)
{
    shorts sign = bits >> 15, size = bits & INT16_MAX, nan = size > infinity;
    return (((size ^ sign) - sign) & ~nan) | (nan & INT16_MAX);
}

#define ITEM int16_t
#define ITEMS shorts
#define MASKS shorts
#define CODES many_bytes
#define LANES 32
#define LAST(name) name##_16
#define LAST_KEY pool_half_key
#define LAST_KEYS pool_half_keys
#define LAST_NAN(key) ((key) == INT16_MAX)
#define LAST_LEAST(infinity) ((int16_t)((infinity) | INT16_MIN))
#define LAST_TRANSPOSE ah_transpose_16
#include "cpu/image/pool_last_loops.h"

/* The ops. */

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
        max_last_f32(s, ah_tensor_data(xt), INFINITY, ah_tensor_data(out), code, rows.block);
    else
        max_last_16(s, ah_tensor_data(xt), xt->dtype == AH_BF16 ? 0x7f80 : 0x7c00, ah_tensor_data(out), code,
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
    struct ah_dense x = {0}, wide = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    if (place)
        AH_TRYGO(ah_dense_scratch(&wide, (size_t)out->numel * sizeof(int32_t)), out);
    if (ah_compute_dtype(xt->dtype) == AH_F32)
        max_planes_f32(&s, x.data, y.data, wide.block);
    else
        max_planes_f64(&s, x.data, y.data, wide.block);
    if (place)
        pack_places(place, wide.data);
    if (arg->return_indices.flag)
        flat_indices(&s, wide.data, ah_tensor_data(c->out[1]));
out:
    ah_dense_out_close(&y);
    ah_dense_close(&wide);
    ah_dense_close(&x);
    return status;
}

/* A window entirely in the padding has no position: it is the first of the plane. */
int ah_cpu_max_pool2d_positions(struct ah_call *c)
{
    const struct ah_args_max_pool2d_positions *arg = ah_args(c, max_pool2d_positions);
    const struct ah_tensor *place = arg->place.tensor;
    struct ah_window s;
    struct ah_dense wide = {0};
    AH_TRY(max_geometry(&s, c, arg->input_size.ints.at, arg->input_size.ints.count, 2));
    AH_TRY(ah_dense_scratch(&wide, (size_t)place->numel * sizeof(int32_t)));
    int64_t *index = ah_tensor_data(c->out[0]);
    unpack_places(wide.block, place);
    flat_indices(&s, wide.block, index);
    for (int64_t i = 0; i < place->numel; i++)
        if (index[i] < 0 || index[i] >= s.h * s.w)
            index[i] = 0;
    ah_dense_close(&wide);
    return 0;
}

/* Sum halves of windows that overlap in float32, image by image, and round once. */
static int max_last_backward_widened(const struct ah_window *s, const int16_t *g, enum ah_dtype dtype,
                                     const uint8_t *place, int16_t *gx)
{
    int64_t size = s->oh * s->ow * s->c, plane = s->h * s->w * s->c;
    struct ah_dense images = {0};
    AH_TRY(ah_dense_scratch(&images, (size_t)(ah_num_threads() * (size + plane)) * sizeof(float)));
    float *image = images.block;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * size, AH_SHARE_HEAVY))
    for (int64_t n = 0; n < s->n; n++) {
        float *from = image + ah_thread_index() * (size + plane), *to = from + size;
        ah_cast(size, from, AH_F32, 1, g + n * size, dtype, 1);
        max_image_backward_f32(s, from, place + n * size, to);
        ah_cast(plane, gx + n * plane, dtype, 1, to, AH_F32, 1);
    }
    ah_dense_close(&images);
    return 0;
}

static int max_last_backward(const struct ah_window *s, struct ah_tensor *gt, struct ah_tensor *place,
                             struct ah_tensor *out)
{
    bool half = gt->dtype != AH_F32;
    const uint8_t *code = ah_tensor_data(place);
    struct ah_dense g = {0};
    int status = 0;
    AH_TRYGO(ah_nhwc_open(&g, gt, half), out);
    if (!half)
        max_last_backward_f32(s, g.data, code, ah_tensor_data(out));
    else if (pool_is_apart(s))
        max_last_backward_16(s, g.data, code, ah_tensor_data(out));
    else
        status = max_last_backward_widened(s, g.data, gt->dtype, code, ah_tensor_data(out));
    out->storage->channels_last = true;
out:
    ah_dense_close(&g);
    return status;
}

int ah_cpu_max_pool2d_backward(struct ah_call *c)
{
    const struct ah_args_max_pool2d_backward *arg = ah_args(c, max_pool2d_backward);
    struct ah_tensor *gt = arg->grad.tensor, *place = arg->place.tensor, *out = c->out[0];
    struct ah_window s;
    struct ah_dense g = {0}, wide = {0};
    int status;
    AH_TRY(max_geometry(&s, c, arg->input_size.ints.at, arg->input_size.ints.count, 3));
    if (place->storage->channels_last && ah_compute_dtype(gt->dtype) == AH_F32)
        return max_last_backward(&s, gt, place, out);
    struct ah_dense_out gx = {0};
    AH_TRY(ah_tensor_row_major(place));
    AH_TRYGO(ah_dense_open(&g, gt), out);
    AH_TRYGO(ah_dense_scratch(&wide, (size_t)place->numel * sizeof(int32_t)), out);
    unpack_places(wide.block, place);
    AH_TRYGO(ah_dense_out_open(&gx, out), out);
    if (ah_compute_dtype(gt->dtype) == AH_F32)
        max_planes_backward_f32(&s, g.data, wide.data, gx.data);
    else
        max_planes_backward_f64(&s, g.data, wide.data, gx.data);
out:
    ah_dense_out_close(&gx);
    ah_dense_close(&wide);
    ah_dense_close(&g);
    return status;
}

static int pool_mean(struct ah_call *c, const struct ah_window *s, const struct rectangles *r, bool backward)
{
    struct ah_tensor *in = c->arg[0].tensor;
    struct ah_dense x = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(ah_dense_open(&x, in), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    bool single = ah_compute_dtype(in->dtype) == AH_F32;
    if (single && backward)
        mean_planes_backward_f32(s, r, x.data, y.data);
    else if (single)
        mean_planes_f32(s, r, x.data, y.data);
    else if (backward)
        mean_planes_backward_f64(s, r, x.data, y.data);
    else
        mean_planes_f64(s, r, x.data, y.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&x);
    return status;
}

static int window_mean(struct ah_call *c, const int64_t *size, int ndim, int at, bool backward)
{
    struct ah_window s;
    AH_TRY(ah_window_geometry(&s, c->op->name, size, ndim, &c->arg[at], &c->arg[at + 1], &c->arg[at + 2], NULL,
                              c->arg[at + 3].flag));
    const struct ah_value *divisor = &c->arg[at + 5];
    struct rectangles r = {.count_padding = c->arg[at + 4].flag,
                           .divisor = divisor->kind == AH_NONE ? 0 : divisor->integer};
    return pool_mean(c, &s, &r, backward);
}

int ah_cpu_avg_pool2d(struct ah_call *c)
{
    const struct ah_args_avg_pool2d *arg = ah_args(c, avg_pool2d);
    return window_mean(c, arg->input.tensor->size, arg->input.tensor->ndim, 1, false);
}

int ah_cpu_avg_pool2d_backward(struct ah_call *c)
{
    const struct ah_args_avg_pool2d_backward *arg = ah_args(c, avg_pool2d_backward);
    return window_mean(c, arg->input_size.ints.at, arg->input_size.ints.count, 2, true);
}

static int adaptive_mean(struct ah_call *c, const int64_t *in, const int64_t *out, int ndim, bool backward)
{
    struct ah_window s = {.n = ndim == 4 ? in[0] : 1, .c = in[ndim - 3], .h = in[ndim - 2], .w = in[ndim - 1],
                          .oh = out[ndim - 2], .ow = out[ndim - 1]};
    return pool_mean(c, &s, &(struct rectangles){.adaptive = true}, backward);
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
