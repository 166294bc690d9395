/* Batch norm and relu in one pass forward and two backward (norm.h). Sums are in the order of norm_rows_loops.h, so
 * that results have the bits of the two ops. */
#include <string.h>

#include "base/process/parallel.h"
#include "cpu/loop/column_sum.h"
#include "cpu/reduce/norm.h"

enum { CHUNK_ROWS = 64, BLOCK = 32 };

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

/* The sums of the gradient that counts, h, and of h (x - mean) over a chunk of rows, for `width` columns. */
static inline void norm_relu_block(const float *restrict g, const float *restrict x, const float *restrict y,
                                   int64_t rows, int64_t c, int64_t width, const float *restrict mean,
                                   const float *restrict scale, const float *restrict shift, float *restrict masked,
                                   float *restrict sums, float *restrict products)
{
    float sum[BLOCK] = {0}, product[BLOCK] = {0};
    if (masked) {
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t k = 0; k < width; k++) {
                float h = y[i * c + k] <= 0 ? 0 : g[i * c + k];
                masked[i * c + k] = h;
                sum[k] += h;
                product[k] += h * (x[i * c + k] - mean[k]);
            }
        }
    } else {
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t k = 0; k < width; k++) {
                float h = x[i * c + k] * scale[k] + shift[k] <= 0 ? 0 : g[i * c + k];
                sum[k] += h;
                product[k] += h * (x[i * c + k] - mean[k]);
            }
        }
    }
    memcpy(sums, sum, (size_t)width * sizeof *sums);
    memcpy(products, product, (size_t)width * sizeof *products);
}

int ah_norm_relu_sums(const struct ah_batch *b, const float *g, const float *x, const float *y, const float *mean,
                      const float *scale, const float *shift, float *masked, float *sum_g, float *sum_gx)
{
    int64_t rows = b->n * b->pixels, c = b->c, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    struct ah_dense partial = {0};
    int status = ah_dense_scratch(&partial, (size_t)(2 * chunks * c) * sizeof(float));
    if (status < 0)
        return status;
    float *sums = partial.block, *products = sums + chunks * c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t first = i * CHUNK_ROWS, count = rows - first < CHUNK_ROWS ? rows - first : CHUNK_ROWS;
        for (int64_t k = 0; k < c; k += BLOCK) {
            int64_t at = first * c + k;
            float *to = masked ? masked + at : NULL;
            if (c - k >= BLOCK)
                norm_relu_block(g + at, x + at, y + at, count, c, BLOCK, mean + k, scale + k, shift + k, to,
                                sums + i * c + k, products + i * c + k);
            else
                norm_relu_block(g + at, x + at, y + at, count, c, c - k, mean + k, scale + k, shift + k, to,
                                sums + i * c + k, products + i * c + k);
        }
    }
    status = ah_column_sum_f32(sums, chunks, c, sum_g);
    if (status == 0)
        status = ah_column_sum_f32(products, chunks, c, sum_gx);
    ah_dense_close(&partial);
    return status;
}

void ah_norm_relu_combine(const struct ah_batch *b, const float *restrict g, const float *restrict x,
                          const float *restrict mean, const float *restrict scale, const float *restrict shift,
                          const float *restrict ca, const float *restrict cb, const float *restrict cc,
                          float *restrict gx)
{
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++) {
        for (int64_t k = 0; k < c; k++) {
            float value = x[i * c + k], h = value * scale[k] + shift[k] <= 0 ? 0 : g[i * c + k];
            gx[i * c + k] = (h - cb[k] - (value - mean[k]) * cc[k]) * ca[k];
        }
    }
}
