/* Batch norm and relu in one pass forward and two backward (norm.h). Sums are in the order of norm_rows_loops.h, and
 * results of bfloat16 are rounded as often as by the ops, whose bits they have. Functions of `half` are compiled for
 * both types of items. */
#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/lanes.h"
#include "cpu/reduce/norm.h"

enum { CHUNK_ROWS = 64, LANES = AH_LANES_BYTES / 4 };

typedef ah_lanes_f32 lanes;

static inline lanes load(const float *p)
{
    return *(const ah_lanes_at_f32 *)p;
}

static inline void store(float *p, lanes v)
{
    *(ah_lanes_at_f32 *)p = v;
}

static inline float above_zero(float x)
{
    return x < 0 ? 0 : x;
}

/* The result of an op as it is stored: with `half` rounded to bfloat16. */
static inline __attribute__((always_inline)) lanes stored_as(const bool half, lanes v)
{
    return half ? ah_rounded_bf16(v) : v;
}

static inline __attribute__((always_inline)) float item_load(const bool half, const void *array, int64_t at)
{
    return half ? ah_bf16_to_f32(((const uint16_t *)array)[at]) : ((const float *)array)[at];
}

static inline __attribute__((always_inline)) void item_store(const bool half, void *array, int64_t at, float value)
{
    if (half)
        ((uint16_t *)array)[at] = ah_f32_to_bf16(value);
    else
        ((float *)array)[at] = value;
}

static inline __attribute__((always_inline)) void apply_row(const bool half, int64_t c, const void *x, int64_t first,
                                                            const float *restrict scale, const float *restrict shift,
                                                            const void *other, void *y)
{
    int64_t k = 0;
    for (; k + LANES <= c; k += LANES) {
        lanes v = ah_lanes_load(half, x, first + k) * load(scale + k) + load(shift + k);
        if (other)
            v = stored_as(half, v) + ah_lanes_load(half, other, first + k);
        ah_lanes_store(half, y, first + k, ah_larger_f32((lanes){0}, v));
    }
    for (; k < c; k++) {
        float v = item_load(half, x, first + k) * scale[k] + shift[k];
        v = half ? ah_bf16_to_f32(ah_f32_to_bf16(v)) : v;
        item_store(half, y, first + k, above_zero(other ? v + item_load(half, other, first + k) : v));
    }
}

void ah_norm_relu_apply(const struct ah_batch *b, bool half, const void *x, const float *scale, const float *shift,
                        const void *other, void *y)
{
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++) {
        if (half)
            apply_row(true, c, x, i * c, scale, shift, other, y);
        else
            apply_row(false, c, x, i * c, scale, shift, other, y);
    }
}

/* The gradient where the output is above 0 or NaN, else 0. */
static inline lanes counted(lanes output, lanes gradient)
{
    return (lanes)((ah_lane_ints_f32)gradient & ~(output <= (lanes){0}));
}

/* `first` is the number of the first item of a chunk. */
struct relu_rows {
    const void *g, *x, *y;
    const float *mean, *scale, *shift;
    void *masked;
    float *sums, *products;
    int64_t c, first;
};

/* Add the gradient that counts, h, and h (x - mean) of `rows` rows from row `row` on to the sums. */
static inline __attribute__((always_inline)) void relu_rows_add(const bool half, const int rows, const bool stored,
                                                                const struct relu_rows *r, int64_t row)
{
    int64_t c = r->c, k = 0, begin = r->first + row * c;
    for (; k + LANES <= c; k += LANES) {
        lanes sum = load(r->sums + k), product = load(r->products + k), mean = load(r->mean + k);
        lanes scale = load(r->scale + k), shift = load(r->shift + k);
        for (int i = 0; i < rows; i++) {
            int64_t at = begin + i * c + k;
            lanes x = ah_lanes_load(half, r->x, at), y = stored ? ah_lanes_load(half, r->y, at) : x * scale + shift;
            lanes h = counted(y, ah_lanes_load(half, r->g, at));
            if (stored)
                ah_lanes_store(half, r->masked, at, h);
            sum += h;
            product += h * (x - mean);
        }
        store(r->sums + k, sum);
        store(r->products + k, product);
    }
    for (; k < c; k++) {
        for (int i = 0; i < rows; i++) {
            int64_t at = begin + i * c + k;
            float x = item_load(half, r->x, at), y = stored ? item_load(half, r->y, at) : x * r->scale[k] + r->shift[k];
            float h = y <= 0 ? 0 : item_load(half, r->g, at);
            if (stored)
                item_store(half, r->masked, at, h);
            r->sums[k] += h;
            r->products[k] += h * (x - r->mean[k]);
        }
    }
}

/* The sums of a chunk of rows: some rows at a time, so that memory is read in order. */
static inline __attribute__((always_inline)) void relu_chunk(const bool half, const bool stored,
                                                             const struct relu_rows *r, int64_t rows)
{
    memset(r->sums, 0, (size_t)r->c * sizeof(float));
    memset(r->products, 0, (size_t)r->c * sizeof(float));
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4)
        relu_rows_add(half, 4, stored, r, i);
    for (; i < rows; i++)
        relu_rows_add(half, 1, stored, r, i);
}

static void relu_chunk_run(bool half, const struct relu_rows *r, int64_t rows)
{
    if (half && r->masked)
        relu_chunk(true, true, r, rows);
    else if (half)
        relu_chunk(true, false, r, rows);
    else if (r->masked)
        relu_chunk(false, true, r, rows);
    else
        relu_chunk(false, false, r, rows);
}

int ah_norm_relu_sums(const struct ah_batch *b, bool half, const void *g, const void *x, const void *y,
                      const float *mean, const float *scale, const float *shift, void *masked, float *sum_g,
                      float *sum_gx)
{
    int64_t rows = b->n * b->pixels, c = b->c, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    AH_CLEANUP(ah_dense_close) struct ah_dense partial = {0};
    AH_TRY(ah_dense_scratch(&partial, (size_t)(2 * chunks * c) * sizeof(float)));
    float *sums = partial.block, *products = sums + chunks * c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t first = i * CHUNK_ROWS, count = rows - first < CHUNK_ROWS ? rows - first : CHUNK_ROWS;
        const struct relu_rows r = {g, x, y, mean, scale, shift, masked, sums + i * c, products + i * c, c, first * c};
        relu_chunk_run(half, &r, count);
    }
    AH_TRY(ah_column_sum_f32(sums, chunks, c, sum_g));
    return ah_column_sum_f32(products, chunks, c, sum_gx);
}

static inline __attribute__((always_inline)) void combine_row(const bool half, int64_t c, const void *g, const void *x,
                                                              int64_t first, const struct ah_norm_relu_factors *f,
                                                              void *gx)
{
    int64_t k = 0;
    for (; k + LANES <= c; k += LANES) {
        lanes value = ah_lanes_load(half, x, first + k);
        lanes h = counted(value * load(f->scale + k) + load(f->shift + k), ah_lanes_load(half, g, first + k));
        lanes along = (value - load(f->mean + k)) * load(f->cc + k);
        ah_lanes_store(half, gx, first + k, (h - load(f->cb + k) - along) * load(f->ca + k));
    }
    for (; k < c; k++) {
        float value = item_load(half, x, first + k);
        float h = value * f->scale[k] + f->shift[k] <= 0 ? 0 : item_load(half, g, first + k);
        item_store(half, gx, first + k, (h - f->cb[k] - (value - f->mean[k]) * f->cc[k]) * f->ca[k]);
    }
}

void ah_norm_relu_combine(const struct ah_batch *b, bool half, const void *g, const void *x,
                          const struct ah_norm_relu_factors *f, void *gx)
{
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++) {
        if (half)
            combine_row(true, c, g, x, i * c, f, gx);
        else
            combine_row(false, c, g, x, i * c, f, gx);
    }
}
