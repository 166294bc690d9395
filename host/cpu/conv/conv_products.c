/* Convolutions as products of matrices over the pixels. */
#include "cpu/conv/conv_products.h"

#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/linear/gemm.h"

/* Is it one matrix product over the pixels: 1x1, without padding and groups? Gradients of oneDNN's convolution
 * reach 55 to 103 GFLOP/s where products reach 84 to 112; forward products are faster where the outputs are more than
 * the inputs, or the weight is large: 512 to 2048 channels of 7x7 104 GFLOP/s (93), back 100 (81), but 512 to 128 of
 * 28x28 97 (110) (Zen 4, one thread, the shapes of ResNet-50, 2026-11). */
static bool is_pointwise(const struct ah_conv *s)
{
    return s->kh == 1 && s->kw == 1 && s->groups == 1 && s->padding[0] == 0 && s->padding[1] == 0;
}

enum {
    WHOLE_OUTPUTS = 8, /* with fewer the product needs less time than the images' rearrangement */
};

static bool is_strided(const struct ah_conv *s)
{
    return s->stride[0] > 1 || s->stride[1] > 1;
}

/* The pixels of an input that a strided 1x1 convolution, or an item of a larger kernel, uses, as rows of a matrix; a
 * row has `bytes`, those of the padding are 0. The copy needs 5 % of the time of the product, and oneDNN's convolutions
 * of 1x1 need 1.2 to 1.9 times that of both, on two threads up to 2.3 times (1024 to 2048 channels of 14x14, Zen 5). */
struct pixels {
    const struct ah_conv *shape;
    char *image, *rows;
    size_t bytes;
    int64_t y, x; /* the pixel of the first output */
};

static void pixels_gather(void *context, int64_t begin, int64_t end)
{
    const struct pixels *p = context;
    const struct ah_conv *s = p->shape;
    for (int64_t line = begin; line < end; line++) {
        int64_t y = line % s->oh * s->stride[0] + p->y;
        bool inside = y >= 0 && y < s->h;
        const char *from = p->image + (size_t)((line / s->oh * s->h + (inside ? y : 0)) * s->w) * p->bytes;
        char *to = p->rows + (size_t)(line * s->ow) * p->bytes;
        for (int64_t i = 0; i < s->ow; i++, to += p->bytes) {
            int64_t x = i * s->stride[1] + p->x;
            if (inside && x >= 0 && x < s->w)
                memcpy(to, from + (size_t)x * p->bytes, p->bytes);
            else
                memset(to, 0, p->bytes);
        }
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
    return (struct pixels){.shape = s, .image = (char *)(uintptr_t)image, .rows = rows, .bytes = bytes};
}

/* Does one of `count` outputs read a pixel, from `first` on in steps, of a side of `size`? */
static bool side_is_read(int64_t first, int64_t count, int64_t step, int64_t size)
{
    int64_t begin = first < 0 ? (-first + step - 1) / step : 0;
    return begin < count && first + begin * step < size;
}

/* Gather the pixels of one item of the kernel; false: all are in the padding. */
static bool pixels_of_item(struct pixels *p, int64_t item)
{
    const struct ah_conv *s = p->shape;
    p->y = item / s->kw * s->dilation[0] - s->padding[0];
    p->x = item % s->kw * s->dilation[1] - s->padding[1];
    if (!side_is_read(p->y, s->oh, s->stride[0], s->h) || !side_is_read(p->x, s->ow, s->stride[1], s->w))
        return false;
    ah_parallel_units(s->n * s->oh, s->ow * s->c, AH_SHARE_LIGHT, pixels_gather, p);
    return true;
}

/* The input as rows of pixels: itself without a stride. NULL after a failure. */
static const void *pointwise_rows(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *x)
{
    if (!is_strided(s))
        return x;
    struct pixels p = pixels_open(a, s, half, x);
    if (p.rows)
        pixels_of_item(&p, 0);
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

/* The gradient of the weight, item by item of the kernel. */
struct items {
    const struct ah_conv *shape;
    const float *sums; /* [item of the kernel, o, c] */
    void *weight;
    bool half;
};

/* Write the weights of the outputs [begin, end), rounded with `half`. */
static void items_store(void *context, int64_t begin, int64_t end)
{
    const struct items *t = context;
    int64_t kernel = t->shape->kh * t->shape->kw, c = t->shape->c, all = t->shape->oc * c;
    for (int64_t at = begin * c; at < end * c; at++) {
        for (int64_t k = 0; k < kernel; k++) {
            float sum = t->sums[k * all + at];
            if (t->half)
                ((uint16_t *)t->weight)[at * kernel + k] = ah_f32_to_bf16(sum);
            else
                ((float *)t->weight)[at * kernel + k] = sum;
        }
    }
}

/* Is the weight's gradient one product for each item of the kernel? oneDNN's strided kernels are slow at it: 3x3 of 8
 * images, 128 channels of 56x56 to 512 of 14x14, run at 120 to 178 GFLOP/s of a peak of 276 (one thread of a Zen 5,
 * float32), these products at 202 to 233. They gain nothing with fewer channels or larger kernels. With outputs of a
 * few pixels oneDNN multiplies mostly padding: they are 1.5 to 2.6 times as fast. */
static bool items_pay(const struct ah_conv *s)
{
    bool strided = s->stride[0] > 1 && s->stride[1] > 1;
    int64_t pixels = s->oh * s->ow, channels = pixels <= 16 ? 64 : 128;
    return s->groups == 1 && s->kh * s->kw > 1 && s->kh * s->kw <= 9 && (strided || pixels <= 4) &&
           s->c >= channels && s->oc >= channels;
}

static int items_grad_weight(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *x, const void *g,
                             void *w)
{
    int64_t kernel = s->kh * s->kw, pixels = s->n * s->oh * s->ow;
    struct pixels p = pixels_open(a, s, half, x);
    float *sums = ah_array_scratch(a, (size_t)(kernel * s->oc * s->c) * sizeof *sums);
    for (int64_t k = 0; k < kernel && a->status >= 0; k++) {
        float *to = sums + k * s->oc * s->c;
        int done = 1;
        if (!pixels_of_item(&p, k))
            memset(to, 0, (size_t)(s->oc * s->c) * sizeof *to);
        else if (half)
            done = ah_gemm_bf16_wide(true, false, s->oc, s->c, pixels, g, s->oc, (uint16_t *)(void *)p.rows, s->c, to,
                                     s->c);
        else
            done = pointwise_product(false, true, false, s->oc, s->c, pixels, g, p.rows, to);
        if (done <= 0)
            return done;
    }
    if (a->status < 0)
        return a->status;
    struct items t = {s, sums, w, half};
    ah_parallel_units(s->oc, s->c * kernel, AH_SHARE_LIGHT, items_store, &t);
    return 1;
}

int ah_conv_products(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *x, const void *w,
                     const void *bias, void *y)
{
    return is_pointwise(s) ? pointwise_forward(a, s, half, x, w, bias, y) : 0;
}

int ah_conv_products_grad_input(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *g, const void *w,
                                void *x)
{
    return is_pointwise(s) ? pointwise_grad_input(a, s, half, g, w, x) : 0;
}

int ah_conv_products_grad_weight(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *x, const void *g,
                                 void *w)
{
    if (is_pointwise(s))
        return pointwise_grad_weight(a, s, half, x, g, w);
    return items_pay(s) ? items_grad_weight(a, s, half, x, g, w) : 0;
}

bool ah_conv_is_whole(const struct ah_conv *s)
{
    return s->groups == 1 && s->kh == s->h && s->kw == s->w && s->kh * s->kw > 1 && s->padding[0] == 0 &&
           s->padding[1] == 0 && s->dilation[0] == 1 && s->dilation[1] == 1;
}

int ah_conv_whole(const struct ah_conv *s, bool half, const void *x, const void *w, const void *bias, void *y)
{
    int64_t depth = s->c * s->kh * s->kw;
    if (half)
        return ah_gemm_bf16(false, true, s->n, s->oc, depth, x, depth, w, depth, bias, y, s->oc);
    if (!bias)
        return pointwise_product(false, false, true, s->n, s->oc, depth, x, w, y);
    AH_TRY(ah_gemm_bias_f32(false, true, s->n, s->oc, depth, x, depth, w, depth, bias, y, s->oc));
    return 1;
}

/* Images that are written channels-last from rows. */
struct turned {
    const struct ah_conv *shape;
    const void *from;
    void *to;
    bool half;
};

#define TURN(type)                                                                     \
    for (int64_t p = 0; p < pixels; p++)                                               \
        for (int64_t i = 0; i < c; i++)                                                \
            ((type *)t->to)[(image * pixels + p) * c + i] = ((const type *)t->from)[(image * c + i) * pixels + p]

static void images_turn(void *context, int64_t begin, int64_t end)
{
    const struct turned *t = context;
    int64_t pixels = t->shape->h * t->shape->w, c = t->shape->c;
    for (int64_t image = begin; image < end; image++) {
        if (t->half)
            TURN(uint16_t);
        else
            TURN(float);
    }
}

int ah_conv_whole_grad_input(struct ah_arrays *a, const struct ah_conv *s, bool half, const void *g, const void *w,
                             void *x)
{
    int64_t depth = s->c * s->kh * s->kw;
    if (s->oc < WHOLE_OUTPUTS)
        return 0;
    void *rows = ah_array_scratch(a, (size_t)(s->n * depth) * (half ? sizeof(uint16_t) : sizeof(float)));
    int done = rows ? pointwise_product(half, false, false, s->n, depth, s->oc, g, w, rows) : a->status;
    struct turned t = {s, rows, x, half};
    if (done > 0)
        ah_parallel_units(s->n, depth, AH_SHARE_LIGHT, images_turn, &t);
    return done;
}

int ah_conv_whole_grad_weight(const struct ah_conv *s, bool half, const void *x, const void *g, void *w)
{
    return pointwise_product(half, true, false, s->oc, s->c * s->kh * s->kw, s->n, g, x, w);
}
