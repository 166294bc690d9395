/* The gradient of a convolution's weight as one matrix product over output pixels, without im2col: tiles of the result
 * stay in registers while blocks of rows go by. Threads own tiles, so each sum has one order whatever their number. */
#include "cpu/conv/conv_direct.h"

#ifdef __AVX512F__

#include <immintrin.h>
#include <omp.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/loop/dense.h"

/* The gradient is the matrix
 *     D[j, o] = sum over output pixels p of x[p's start + offset[j]] * g[p, o],     j = (kh, kw, c),
 * kept as D in scratch and turned to the weight's order at the end. A tile of it lives in registers while a block of
 * output rows goes by: no im2col, no packing. Threads own tiles, so sums have one order. */

enum {
    PIXELS = 128,           /* of one block: the gradient's part stays in the first-level cache */
    MAX_SUMS = 384 << 10,   /* bytes of D: larger ones leave the second-level cache between blocks, and oneDNN wins */
};

struct block {
    const float *x, *g; /* the block's first pixel */
    int64_t rows, width, x_row, x_step, g_step; /* floats from row to row, pixel to pixel */
};

/* `J` values of j times `V` vectors of o, both constant at every call so that sums stay in registers. */
static inline __attribute__((always_inline)) void conv_tile(const int J, const int V, const struct block *b,
                                                            const int64_t *offset, float *d, int64_t d_row)
{
    __m512 sum[12][4];
    const float *x[12];
#pragma GCC unroll 12
    for (int j = 0; j < J; j++) {
        x[j] = b->x + offset[j];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            sum[j][v] = _mm512_loadu_ps(d + j * d_row + 16 * v);
    }
    const float *g = b->g;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t at = r * b->x_row;
        for (int64_t p = 0; p < b->width; p++, at += b->x_step, g += b->g_step) {
            __m512 row[4];
#pragma GCC unroll 4
            for (int v = 0; v < V; v++)
                row[v] = _mm512_loadu_ps(g + 16 * v);
#pragma GCC unroll 12
            for (int j = 0; j < J; j++) {
                __m512 value = _mm512_set1_ps(x[j][at]);
#pragma GCC unroll 4
                for (int v = 0; v < V; v++)
                    sum[j][v] = _mm512_fmadd_ps(value, row[v], sum[j][v]);
            }
        }
    }
#pragma GCC unroll 12
    for (int j = 0; j < J; j++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            _mm512_storeu_ps(d + j * d_row + 16 * v, sum[j][v]);
}

#define TILE(j, v)                                                                                    \
    static void tile_##j##_##v(const struct block *b, const int64_t *offset, float *d, int64_t d_row) \
    {                                                                                                 \
        conv_tile(j, v, b, offset, d, d_row);                                                         \
    }
TILE(1, 4) TILE(2, 4) TILE(3, 4) TILE(4, 4) TILE(5, 4) TILE(6, 4)
TILE(1, 2) TILE(2, 2) TILE(3, 2) TILE(4, 2) TILE(5, 2) TILE(6, 2)
TILE(7, 2) TILE(8, 2) TILE(9, 2) TILE(10, 2) TILE(11, 2) TILE(12, 2)

typedef void (*tile_fn)(const struct block *b, const int64_t *offset, float *d, int64_t d_row);
static const tile_fn tiles_4[] = {NULL, tile_1_4, tile_2_4, tile_3_4, tile_4_4, tile_5_4, tile_6_4};
static const tile_fn tiles_2[] = {NULL,     tile_1_2, tile_2_2, tile_3_2,  tile_4_2,  tile_5_2, tile_6_2,
                                  tile_7_2, tile_8_2, tile_9_2, tile_10_2, tile_11_2, tile_12_2};

/* The input with its zero padding around it. */
static int pad_input(const struct ah_conv *s, const float *x, struct ah_dense *padded)
{
    int64_t h = s->h + 2 * s->padding[0], w = s->w + 2 * s->padding[1], c = s->c;
    AH_TRY(ah_dense_scratch(padded, (size_t)(s->n * h * w * c) * sizeof *x));
    float *to = padded->block;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * h * w * c, AH_SHARE_LIGHT))
    for (int64_t row = 0; row < s->n * h; row++) {
        int64_t y = row % h - s->padding[0];
        float *line = to + row * w * c;
        if (y < 0 || y >= s->h) {
            memset(line, 0, (size_t)(w * c) * sizeof *line);
            continue;
        }
        memset(line, 0, (size_t)(s->padding[1] * c) * sizeof *line);
        memcpy(line + s->padding[1] * c, x + (row / h * s->h + y) * s->w * c, (size_t)(s->w * c) * sizeof *line);
        memset(line + (s->padding[1] + s->w) * c, 0, (size_t)(s->padding[1] * c) * sizeof *line);
    }
    return 0;
}

/* All blocks of output rows for the tiles [begin, end): those of 64 columns first, then those of 32. */
static void run_tiles(const struct ah_conv *s, const float *x, const float *g, const int64_t *offset, float *d,
                      int64_t begin, int64_t end)
{
    int64_t h = s->h + 2 * s->padding[0], w = s->w + 2 * s->padding[1];
    int64_t depth = s->kh * s->kw * s->c, wide = s->oc / 64, per_wide = (depth + 5) / 6;
    int64_t step = s->ow < PIXELS ? PIXELS / s->ow : 1;
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t y = 0; y < s->oh; y += step) {
            struct block b = {.x = x + (n * h + y * s->stride[0]) * w * s->c,
                              .g = g + (n * s->oh + y) * s->ow * s->oc,
                              .rows = s->oh - y < step ? s->oh - y : step,
                              .width = s->ow,
                              .x_row = s->stride[0] * w * s->c,
                              .x_step = s->stride[1] * s->c,
                              .g_step = s->oc};
            const float *g_first = b.g;
            for (int64_t t = begin; t < end; t++) {
                bool is_wide = t < wide * per_wide;
                int64_t o = is_wide ? t / per_wide * 64 : wide * 64;
                int64_t j = is_wide ? t % per_wide * 6 : (t - wide * per_wide) * 12;
                int64_t most = is_wide ? 6 : 12, count = depth - j < most ? depth - j : most;
                b.g = g_first + o;
                (is_wide ? tiles_4 : tiles_2)[count](&b, offset + j, d + j * s->oc + o, s->oc);
            }
        }
    }
}

bool ah_conv_direct_fits(const struct ah_conv *s)
{
    int64_t depth = s->kh * s->kw * s->c;
    return s->groups == 1 && s->oc % 32 == 0 && depth >= 24 && depth * s->oc * (int64_t)sizeof(float) <= MAX_SUMS;
}

static int direct_grad_weight(const struct ah_conv *s, const float *src, const float *grad_dst, float *grad_weight)
{
    int64_t depth = s->kh * s->kw * s->c;
    AH_CLEANUP(ah_dense_close) struct ah_dense padded = {0}, offsets = {0}, sums = {0};
    const float *x = src;
    if (s->padding[0] || s->padding[1]) {
        AH_TRY(pad_input(s, src, &padded));
        x = padded.data;
    }
    AH_TRY(ah_dense_scratch(&offsets, (size_t)depth * sizeof(int64_t)));
    AH_TRY(ah_dense_scratch(&sums, (size_t)(depth * s->oc) * sizeof(float)));
    int64_t *offset = offsets.block, w = s->w + 2 * s->padding[1];
    float *d = sums.block;
    for (int64_t j = 0; j < depth; j++) {
        int64_t kh = j / (s->kw * s->c), kw = j / s->c % s->kw, c = j % s->c;
        offset[j] = (kh * s->dilation[0] * w + kw * s->dilation[1]) * s->c + c;
    }
    memset(d, 0, (size_t)(depth * s->oc) * sizeof *d);
    int64_t tiles = s->oc / 64 * ((depth + 5) / 6) + (s->oc % 64 ? (depth + 11) / 12 : 0);
    bool divided = ah_worth_threads(s->n * s->oh * s->ow * depth, AH_SHARE_LIGHT);
#pragma omp parallel num_threads(divided ? ah_num_threads() : 1)
    {
        int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();
        run_tiles(s, x, grad_dst, offset, d, tiles * part / parts, tiles * (part + 1) / parts);
    }
    for (int64_t j = 0; j < depth; j++) {
        int64_t kernel = s->kh * s->kw, at = j % s->c * kernel + j / s->c;
        for (int64_t o = 0; o < s->oc; o++)
            grad_weight[o * depth + at] = d[j * s->oc + o];
    }
    return 1;
}

/* With stride 1 the same sums are those of the convolution of the outputs' gradients, padded, with the input as
 * gradient: its channels are the vectors, where the outputs are few. The kernel is turned. */
static bool direct_fits_exchanged(const struct ah_conv *s, struct ah_conv *other)
{
    *other = *s;
    other->c = s->oc;
    other->oc = s->c;
    other->h = s->oh;
    other->w = s->ow;
    other->oh = s->h;
    other->ow = s->w;
    other->padding[0] = s->dilation[0] * (s->kh - 1) - s->padding[0];
    other->padding[1] = s->dilation[1] * (s->kw - 1) - s->padding[1];
    return s->stride[0] == 1 && s->stride[1] == 1 && other->padding[0] >= 0 && other->padding[1] >= 0 &&
           ah_conv_direct_fits(other);
}

static int direct_grad_weight_exchanged(const struct ah_conv *other, const float *src, const float *grad_dst,
                                        float *grad_weight)
{
    int64_t kernel = other->kh * other->kw, outs = other->c, channels = other->oc;
    AH_CLEANUP(ah_dense_close) struct ah_dense turned = {0};
    AH_TRY(ah_dense_scratch(&turned, (size_t)(outs * channels * kernel) * sizeof *grad_weight));
    int done = direct_grad_weight(other, grad_dst, src, turned.block);
    const float *from = turned.block;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t o = 0; o < outs; o++, from += kernel)
            for (int64_t k = 0; k < kernel; k++)
                grad_weight[(o * channels + c) * kernel + kernel - 1 - k] = from[k];
    return done;
}

int ah_conv_direct_grad_weight(const struct ah_conv *s, const float *src, const float *grad_dst, float *grad_weight)
{
    struct ah_conv other;
    if (ah_conv_direct_fits(s))
        return direct_grad_weight(s, src, grad_dst, grad_weight);
    if (s->oc < 16 && direct_fits_exchanged(s, &other))
        return direct_grad_weight_exchanged(&other, src, grad_dst, grad_weight);
    return 0;
}

#else

bool ah_conv_direct_fits(const struct ah_conv *s)
{
    return false;
}

int ah_conv_direct_grad_weight(const struct ah_conv *s, const float *src, const float *grad_dst, float *grad_weight)
{
    return 0;
}

#endif
