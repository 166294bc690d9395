/* Batch norm and relu in one pass forward and two backward (norm.h). Sums are in the order of norm_rows_loops.h, so
 * that results have the bits of the two ops. */
#include <string.h>

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

void ah_norm_relu_apply(const struct ah_batch *b, const float *restrict x, const float *restrict scale,
                        const float *restrict shift, const float *restrict other, float *restrict y)
{
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++) {
        const float *restrict from = x + i * c, *restrict addend = other ? other + i * c : NULL;
        float *restrict to = y + i * c;
        if (addend)
            for (int64_t k = 0; k < c; k++)
                to[k] = above_zero(from[k] * scale[k] + shift[k] + addend[k]);
        else
            for (int64_t k = 0; k < c; k++)
                to[k] = above_zero(from[k] * scale[k] + shift[k]);
    }
}

/* The gradient where the output is above 0 or NaN, else 0. */
static inline lanes counted(lanes output, lanes gradient)
{
    return (lanes)((ah_lane_ints_f32)gradient & ~(output <= (lanes){0}));
}

struct relu_rows {
    const float *g, *x, *y, *mean, *scale, *shift;
    float *masked, *sums, *products;
    int64_t c;
};

/* Add the gradient that counts, h, and h (x - mean) of `rows` rows from row `first` on to the sums. */
static inline __attribute__((always_inline)) void relu_rows_add(const int rows, const bool stored,
                                                                const struct relu_rows *r, int64_t first)
{
    int64_t c = r->c, k = 0;
    for (; k + LANES <= c; k += LANES) {
        lanes sum = load(r->sums + k), product = load(r->products + k), mean = load(r->mean + k);
        lanes scale = load(r->scale + k), shift = load(r->shift + k);
        for (int i = 0; i < rows; i++) {
            int64_t at = (first + i) * c + k;
            lanes x = load(r->x + at), y = stored ? load(r->y + at) : x * scale + shift;
            lanes h = counted(y, load(r->g + at));
            if (stored)
                store(r->masked + at, h);
            sum += h;
            product += h * (x - mean);
        }
        store(r->sums + k, sum);
        store(r->products + k, product);
    }
    for (; k < c; k++) {
        for (int i = 0; i < rows; i++) {
            int64_t at = (first + i) * c + k;
            float y = stored ? r->y[at] : r->x[at] * r->scale[k] + r->shift[k], h = y <= 0 ? 0 : r->g[at];
            if (stored)
                r->masked[at] = h;
            r->sums[k] += h;
            r->products[k] += h * (r->x[at] - r->mean[k]);
        }
    }
}

/* The sums of a chunk of rows: some rows at a time, so that memory is read in order. */
static inline __attribute__((always_inline)) void relu_chunk(const bool stored, const struct relu_rows *r,
                                                             int64_t rows)
{
    memset(r->sums, 0, (size_t)r->c * sizeof(float));
    memset(r->products, 0, (size_t)r->c * sizeof(float));
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4)
        relu_rows_add(4, stored, r, i);
    for (; i < rows; i++)
        relu_rows_add(1, stored, r, i);
}

int ah_norm_relu_sums(const struct ah_batch *b, const float *g, const float *x, const float *y, const float *mean,
                      const float *scale, const float *shift, float *masked, float *sum_g, float *sum_gx)
{
    int64_t rows = b->n * b->pixels, c = b->c, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    AH_CLEANUP(ah_dense_close) struct ah_dense partial = {0};
    AH_TRY(ah_dense_scratch(&partial, (size_t)(2 * chunks * c) * sizeof(float)));
    float *sums = partial.block, *products = sums + chunks * c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t first = i * CHUNK_ROWS, count = rows - first < CHUNK_ROWS ? rows - first : CHUNK_ROWS;
        const struct relu_rows r = {g + first * c, x + first * c, y + first * c, mean, scale, shift,
                                    masked ? masked + first * c : NULL, sums + i * c, products + i * c, c};
        if (masked)
            relu_chunk(true, &r, count);
        else
            relu_chunk(false, &r, count);
    }
    AH_TRY(ah_column_sum_f32(sums, chunks, c, sum_g));
    return ah_column_sum_f32(products, chunks, c, sum_gx);
}

void ah_norm_relu_combine(const struct ah_batch *b, const float *restrict g, const float *restrict x,
                          const float *restrict mean, const float *restrict scale, const float *restrict shift,
                          const float *restrict ca, const float *restrict cb, const float *restrict cc,
                          float *restrict gx)
{
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++) {
        const float *from = x + i * c, *incoming = g + i * c;
        int64_t k = 0;
        for (; k + LANES <= c; k += LANES) {
            lanes value = load(from + k), h = counted(value * load(scale + k) + load(shift + k), load(incoming + k));
            store(gx + i * c + k, (h - load(cb + k) - (value - load(mean + k)) * load(cc + k)) * load(ca + k));
        }
        for (; k < c; k++) {
            float h = from[k] * scale[k] + shift[k] <= 0 ? 0 : incoming[k];
            gx[i * c + k] = (h - cb[k] - (from[k] - mean[k]) * cc[k]) * ca[k];
        }
    }
}
