/* Convolutions with few output channels: for a block of input pixels one product of matrices computes the terms of each
 * output channel and item of the kernel, then these are added to the outputs, row by row and shifted. With the terms of
 * a row of pixels side by side both are vectors of pixels. */
#include "cpu/conv/conv_few.h"

#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/failure.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/lanes.h"

enum {
    FEW_TERMS = 64 << 10, /* floats of the terms of a block of pixels, */
    FEW_SUMS = 64 << 10,  /* and of the sums of a piece */
    FEW_BANDS = 4,        /* rows of a piece for one of the kernel: terms at its borders are computed twice */
    FEW_LEAST = 16,       /* input channels */
    FEW_ADDITION = 32,    /* the time of adding a term, in multiplications of its sum over the input channels, */
    FEW_STORE = 3,        /* and of an output, in terms (measured on a Zen 5); */
    FEW_STORE_HALF = 8,   /* of one in bfloat16, with the conversion of the inputs */
};

/* Input pixel p adds its terms to the outputs stride * p + offset, one for each item of the kernel. */
struct few_side {
    int64_t in, out, kernel, stride, first, step; /* offset of item k: first + k * step */
};

struct few {
    int64_t n, c, outs, terms; /* terms: of a pixel, (output channel, item of the kernel) */
    struct few_side y, x;
    bool half;
    const char *src;
    const float *weight; /* c rows of the terms' weights */
    const float *bias;
    char *dst;
    int64_t rows;        /* input rows of a product */
    int64_t band, bands; /* output rows of a piece, pieces of an image */
    int64_t width;       /* outputs in a row that have one phase: x % stride */
    int64_t term_floats, sum_floats, wide_floats;
    float *scratch;      /* of all three, for each thread */
    struct ah_failure failure;
};

static int64_t few_offset(const struct few_side *s, int64_t k)
{
    return s->first + k * s->step;
}

static int64_t few_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t few_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t few_floor(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* The sums of one output row and channel, phase after phase. */
static float *few_sums(const struct few *f, float *sums, int64_t row, int64_t o)
{
    return sums + (row * f->outs + o) * f->x.stride * f->width;
}

/* Add the terms of an input row for one output channel and row of the kernel. `ld`: from term to term. */
static void few_add_row(const struct few *f, const float *terms, int64_t ld, float *sums)
{
    for (int64_t k = 0; k < f->x.kernel; k++, terms += ld) {
        int64_t offset = few_offset(&f->x, k), shift = few_floor(offset, f->x.stride);
        int64_t phase = offset - shift * f->x.stride;
        int64_t count = (f->x.out - phase + f->x.stride - 1) / f->x.stride;
        int64_t begin = few_most(0, -shift), end = few_least(f->x.in, count - shift);
        float *restrict to = sums + phase * f->width + shift;
        for (int64_t i = begin; i < end; i++)
            to[i] += terms[i];
    }
}

/* Add the terms of the input rows [begin, end) of an image to the outputs from row `top` on. */
static void few_add(const struct few *f, const float *terms, int64_t begin, int64_t end, int64_t top, int64_t bottom,
                    float *sums)
{
    int64_t ld = (end - begin) * f->x.in;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t k = 0; k < f->y.kernel; k++) {
            int64_t y = row * f->y.stride + few_offset(&f->y, k);
            if (y < top || y >= bottom)
                continue;
            for (int64_t o = 0; o < f->outs; o++)
                few_add_row(f, terms + (o * f->y.kernel + k) * f->x.kernel * ld + (row - begin) * f->x.in, ld,
                            few_sums(f, sums, y - top, o));
        }
    }
}

static void few_store(const struct few *f, int64_t image, int64_t top, int64_t bottom, float *sums)
{
    for (int64_t y = top; y < bottom; y++) {
        int64_t at = (image * f->y.out + y) * f->x.out * f->outs;
        for (int64_t o = 0; o < f->outs; o++) {
            const float *from = few_sums(f, sums, y - top, o);
            float bias = f->bias ? f->bias[o] : 0;
            for (int64_t phase = 0; phase < f->x.stride; phase++, from += f->width) {
                for (int64_t x = phase, i = 0; x < f->x.out; x += f->x.stride, i++) {
                    if (f->half)
                        ((uint16_t *)(void *)f->dst)[at + x * f->outs + o] = ah_f32_to_bf16(from[i] + bias);
                    else
                        ((float *)(void *)f->dst)[at + x * f->outs + o] = from[i] + bias;
                }
            }
        }
    }
}

/* The input pixels from row `row` on, as floats. */
static const float *few_pixels(const struct few *f, int64_t image, int64_t row, int64_t pixels, float *wide)
{
    int64_t at = (image * f->y.in + row) * f->x.in * f->c;
    if (!f->half)
        return (const float *)(const void *)f->src + at;
    const uint16_t *from = (const uint16_t *)(const void *)f->src + at;
    for (int64_t i = 0; i < pixels * f->c; i++)
        wide[i] = ah_bf16_to_f32(from[i]);
    return wide;
}

/* The outputs of one band of an image. Blocks of input rows begin at multiples of `rows`, so that an output is the same
 * sum in each division into bands. */
static int few_band(const struct few *f, int64_t image, int64_t top, int64_t bottom, float *scratch)
{
    float *terms = scratch, *sums = terms + f->term_floats, *wide = sums + f->sum_floats;
    int64_t first = few_offset(&f->y, 0), last = few_offset(&f->y, f->y.kernel - 1);
    int64_t begin = few_floor(top - few_most(first, last) + f->y.stride - 1, f->y.stride);
    int64_t end = few_least(few_floor(bottom - 1 - few_least(first, last), f->y.stride) + 1, f->y.in);
    memset(sums, 0, (size_t)((bottom - top) * f->outs * f->x.stride * f->width) * sizeof *sums);
    for (int64_t row = few_most(begin, 0) / f->rows * f->rows; row < end; row += f->rows) {
        int64_t stop = few_least(row + f->rows, f->y.in), pixels = (stop - row) * f->x.in;
        const float *x = few_pixels(f, image, row, pixels, wide);
        AH_TRY(ah_gemm_f32(true, true, f->terms, pixels, f->c, 1, f->weight, f->terms, x, f->c, 0, terms, pixels));
        few_add(f, terms, row, stop, top, bottom, sums);
    }
    few_store(f, image, top, bottom, sums);
    return 0;
}

static void few_piece(void *context, int piece)
{
    struct few *f = context;
    int64_t parts = f->n * f->bands, pieces = ah_region_pieces();
    float *scratch = f->scratch + ah_thread_index() * (f->term_floats + f->sum_floats + f->wide_floats);
    for (int64_t part = parts * piece / pieces; part < parts * (piece + 1) / pieces; part++) {
        int64_t top = part % f->bands * f->band;
        ah_failure_note(&f->failure, few_band(f, part / f->bands, top, few_least(top + f->band, f->y.out), scratch));
    }
}

static int few_run(struct few *f)
{
    ah_trace_kernel("own shifted sums");
    int threads = ah_num_threads();
    f->terms = f->outs * f->y.kernel * f->x.kernel;
    f->rows = few_least(few_most(FEW_TERMS / (f->terms * f->x.in), 1), f->y.in);
    f->width = ((f->x.out + f->x.stride - 1) / f->x.stride + 15) / 16 * 16;
    int64_t row = f->outs * f->x.stride * f->width;
    f->bands = few_most((f->y.out * row + FEW_SUMS - 1) / FEW_SUMS, (2 * threads + f->n - 1) / f->n);
    f->band = few_least(few_most((f->y.out + f->bands - 1) / f->bands, FEW_BANDS * f->y.kernel), f->y.out);
    f->bands = (f->y.out + f->band - 1) / f->band;
    f->term_floats = f->terms * f->rows * f->x.in;
    f->sum_floats = f->band * row;
    f->wide_floats = f->half ? f->rows * f->x.in * f->c : 0;
    AH_CLEANUP(ah_dense_close) struct ah_dense scratch = {0};
    int64_t floats = f->term_floats + f->sum_floats + f->wide_floats;
    AH_TRY(ah_dense_scratch(&scratch, (size_t)(threads * floats) * sizeof(float)));
    f->scratch = scratch.block;
    ah_pool_run((int)few_least(f->n * f->bands, AH_PIECES_PER_THREAD * threads), few_piece, f);
    int status = ah_failure_result(&f->failure);
    return status < 0 ? status : 1;
}

/* A library multiplies for a whole vector of output channels, of bfloat16 at twice the rate; an eighth is a margin. */
static bool few_pays(const struct ah_conv *s, int64_t outs, int64_t c, bool half)
{
    const int64_t lanes = AH_LANES_BYTES / (int64_t)sizeof(float);
    int64_t terms = s->kh * s->kw, stores = (half ? FEW_STORE_HALF : FEW_STORE) * s->stride[0] * s->stride[1];
    return s->groups == 1 && terms > 1 && c >= FEW_LEAST &&
           8 * outs * (c + FEW_ADDITION) * (terms + stores) <= (half ? 4 : 7) * lanes * c * terms;
}

bool ah_conv_few_pays(const struct ah_conv *s, bool half)
{
    return s->stride[0] == 1 && s->stride[1] == 1 && few_pays(s, s->oc, s->c, half);
}

bool ah_conv_few_pays_grad_input(const struct ah_conv *s, bool half)
{
    return few_pays(s, s->c, s->oc, half);
}

int ah_conv_few(const struct ah_conv *s, bool half, const void *src, const float *weight, const float *bias, void *dst)
{
    int64_t kernel = s->kh * s->kw;
    AH_CLEANUP(ah_dense_close) struct ah_dense rows = {0};
    AH_TRY(ah_dense_scratch(&rows, (size_t)(s->oc * s->c * kernel) * sizeof *weight));
    float *to = rows.block;
    for (int64_t c = 0; c < s->c; c++)
        for (int64_t o = 0; o < s->oc; o++, to += kernel)
            memcpy(to, weight + (o * s->c + c) * kernel, (size_t)kernel * sizeof *weight);
    struct few f = {.n = s->n, .c = s->c, .outs = s->oc, .half = half, .src = src, .weight = rows.block, .bias = bias,
                    .dst = dst, .y = {s->h, s->oh, s->kh, 1, s->padding[0], -s->dilation[0]},
                    .x = {s->w, s->ow, s->kw, 1, s->padding[1], -s->dilation[1]}};
    return few_run(&f);
}

int ah_conv_few_grad_input(const struct ah_conv *s, bool half, const void *grad_dst, const float *weight,
                           void *grad_src)
{
    struct few f = {.n = s->n, .c = s->oc, .outs = s->c, .half = half, .src = grad_dst, .weight = weight,
                    .dst = grad_src, .y = {s->oh, s->h, s->kh, s->stride[0], -s->padding[0], s->dilation[0]},
                    .x = {s->ow, s->w, s->kw, s->stride[1], -s->padding[1], s->dilation[1]}};
    return few_run(&f);
}
