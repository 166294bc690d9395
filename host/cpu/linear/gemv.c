/* Products of few vectors with the rows of a matrix. For one vector the rows of a range are read as four streams, each
 * of a quarter of the range: weights that are mapped from a file, in pages of 4 KiB, are read a fifth faster so, since
 * the processor's prefetchers end at each page (measured on a Zen 4; neighbouring rows at once are read half as fast).
 */
#include "cpu/linear/gemv.h"

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/trace/trace.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/bf16_pairs.h"

enum { LANES = AH_LANES_BYTES / 4, SUMS = 2, ROWS = 4 };

/* Several vectors pay where W is in memory and not in a cache. */
bool ah_gemv_pays(int64_t m, int64_t n, int64_t k)
{
    return m <= AH_GEMV_MOST && n >= 8 && k >= 2 * LANES && (m == 1 || n * k >= 1 << 18);
}

static inline float gemv_sum(ah_lanes_f32 v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] += v[i + half];
    return v[0];
#endif
}

/* Add up the sums of `rows` rows and `m` vectors. The loops are unrolled: the sums stay in registers. */
static inline __attribute__((always_inline)) void gemv_totals(ah_lanes_f32 sum[ROWS][AH_GEMV_MOST][SUMS], int rows,
                                                              int m, float totals[ROWS][AH_GEMV_MOST])
{
#pragma GCC unroll 4
    for (int f = 0; f < rows; f++)
#pragma GCC unroll 4
        for (int r = 0; r < m; r++)
            totals[f][r] = gemv_sum(sum[f][r][0] + sum[f][r][1]);
}

/* y of the rows `row + f * far`, f < `rows`, of W and `m` vectors; the compiler sees both counts as constants. */
static inline __attribute__((always_inline)) void row_f32(const struct ah_gemv *v, int64_t row, int64_t far, int rows,
                                                          int m)
{
    const float *w = (const float *)v->w + row * v->ldw, *x = v->x, *bias = v->bias;
    ah_lanes_f32 sum[ROWS][AH_GEMV_MOST][SUMS] = {{{{0}}}};
    int64_t i = 0, k = v->k, distance = far * v->ldw;
    for (; i + SUMS * LANES <= k; i += SUMS * LANES)
        for (int s = 0; s < SUMS; s++)
            for (int r = 0; r < m; r++) {
                ah_lanes_f32 at = *(const ah_lanes_at_f32 *)(const void *)(x + r * v->ldx + i + s * LANES);
                for (int f = 0; f < rows; f++) {
                    const float *weights = w + f * distance + i + s * LANES;
                    sum[f][r][s] = ah_fma_f32(*(const ah_lanes_at_f32 *)(const void *)weights, at, sum[f][r][s]);
                }
            }
    for (; i + LANES <= k; i += LANES)
        for (int r = 0; r < m; r++)
            for (int f = 0; f < rows; f++)
                sum[f][r][0] = ah_fma_f32(*(const ah_lanes_at_f32 *)(const void *)(w + f * distance + i),
                                          *(const ah_lanes_at_f32 *)(const void *)(x + r * v->ldx + i), sum[f][r][0]);
    float totals[ROWS][AH_GEMV_MOST];
    gemv_totals(sum, rows, m, totals);
    for (int f = 0; f < rows; f++)
        for (int r = 0; r < m; r++) {
            float total = totals[f][r];
            for (int64_t j = i; j < k; j++)
                total += w[f * distance + j] * x[r * v->ldx + j];
            ((float *)v->y)[r * v->ldy + row + f * far] = bias ? total + bias[row + f * far] : total;
        }
}

/* Two bfloat16 numbers in 32 bits of each lane, read anywhere. */
typedef ah_lanes_f32 ah_pairs_at __attribute__((aligned(2), may_alias));

static inline const ah_pairs_at *pairs_at(const uint16_t *items)
{
    return (const ah_pairs_at *)(const void *)items;
}

/* Write y of bfloat16 rows; `sum` is that of the first `done` numbers of each. */
static inline __attribute__((always_inline)) void finish_bf16(const struct ah_gemv *v, int64_t row, int64_t far,
                                                              int rows, int m,
                                                              ah_lanes_f32 sum[ROWS][AH_GEMV_MOST][SUMS], int64_t done)
{
    const uint16_t *w = (const uint16_t *)v->w + row * v->ldw, *bias = v->bias;
    float totals[ROWS][AH_GEMV_MOST];
    gemv_totals(sum, rows, m, totals);
    for (int f = 0; f < rows; f++)
        for (int r = 0; r < m; r++) {
            const uint16_t *x = (const uint16_t *)v->x + r * v->ldx;
            float total = totals[f][r];
            for (int64_t j = done; j < v->k; j++)
                total += ah_bf16_to_f32(w[f * far * v->ldw + j]) * ah_bf16_to_f32(x[j]);
            if (bias)
                total += ah_bf16_to_f32(bias[row + f * far]);
            ((uint16_t *)v->y)[r * v->ldy + row + f * far] = ah_f32_to_bf16(total);
        }
}

/* The same of bfloat16 rows: the even numbers are multiplied in float32, and the odd ones. */
static inline __attribute__((always_inline)) void row_bf16(const struct ah_gemv *v, int64_t row, int64_t far, int rows,
                                                           int m)
{
    const uint16_t *w = (const uint16_t *)v->w + row * v->ldw, *x = v->x;
    ah_lanes_f32 sum[ROWS][AH_GEMV_MOST][SUMS] = {{{{0}}}};
    int64_t i = 0, k = v->k, distance = far * v->ldw;
    for (; i + SUMS * LANES <= k; i += SUMS * LANES) {
        ah_lane_bits_f32 pair[ROWS];
        for (int f = 0; f < rows; f++)
            pair[f] = (ah_lane_bits_f32)*pairs_at(w + f * distance + i);
        for (int r = 0; r < m; r++) {
            ah_lane_bits_f32 at = (ah_lane_bits_f32)*pairs_at(x + r * v->ldx + i);
            ah_lanes_f32 even = (ah_lanes_f32)(at << 16), odd = (ah_lanes_f32)(at & 0xffff0000u);
            for (int f = 0; f < rows; f++) {
                sum[f][r][0] = ah_fma_f32((ah_lanes_f32)(pair[f] << 16), even, sum[f][r][0]);
                sum[f][r][1] = ah_fma_f32((ah_lanes_f32)(pair[f] & 0xffff0000u), odd, sum[f][r][1]);
            }
        }
    }
    finish_bf16(v, row, far, rows, m, sum, i);
}

#define GEMV_ROWS(kind, m)                                                           \
    static void rows_##kind##_##m(void *context, int64_t begin, int64_t end)         \
    {                                                                                \
        const int rows = m == 1 ? ROWS : 1;                                          \
        int64_t far = (end - begin) / rows, row = begin;                             \
        for (; row < begin + far; row++)                                             \
            row_##kind(context, row, far, rows, m);                                  \
        for (row = begin + rows * far; row < end; row++)                             \
            row_##kind(context, row, 0, 1, m);                                       \
    }
#define GEMV_BY_COUNT(kind) GEMV_ROWS(kind, 1) GEMV_ROWS(kind, 2) GEMV_ROWS(kind, 3) GEMV_ROWS(kind, 4)
#define GEMV_TABLE(kind) {rows_##kind##_1, rows_##kind##_2, rows_##kind##_3, rows_##kind##_4}
GEMV_BY_COUNT(f32)
GEMV_BY_COUNT(bf16)

#ifdef AH_LANES_PAIRS
#pragma GCC push_options
AH_LANES_PAIRS
/* Add the products of a vector of weights of each row to its sum number `s`. */
static inline __attribute__((always_inline)) void pairs_step(const struct ah_gemv *v, const uint16_t *w,
                                                             const uint16_t *x, int64_t distance, int rows, int m,
                                                             ah_lanes_f32 sum[ROWS][AH_GEMV_MOST][SUMS], int s)
{
    for (int r = 0; r < m; r++) {
        ah_lanes_f32 at = *pairs_at(x + r * v->ldx);
        for (int f = 0; f < rows; f++)
            sum[f][r][s] = ah_add_pairs(*pairs_at(w + f * distance), at, sum[f][r][s]);
    }
}

/* The same by the instructions for sums of products of pairs. */
static inline __attribute__((always_inline)) void row_pairs(const struct ah_gemv *v, int64_t row, int64_t far,
                                                            int rows, int m)
{
    const uint16_t *w = (const uint16_t *)v->w + row * v->ldw, *x = v->x;
    ah_lanes_f32 sum[ROWS][AH_GEMV_MOST][SUMS] = {{{{0}}}};
    int64_t i = 0, k = v->k, distance = far * v->ldw;
    for (; i + SUMS * 2 * LANES <= k; i += SUMS * 2 * LANES)
        for (int s = 0; s < SUMS; s++)
            pairs_step(v, w + i + s * 2 * LANES, x + i + s * 2 * LANES, distance, rows, m, sum, s);
    for (; i + 2 * LANES <= k; i += 2 * LANES)
        pairs_step(v, w + i, x + i, distance, rows, m, sum, 0);
    finish_bf16(v, row, far, rows, m, sum, i);
}
GEMV_BY_COUNT(pairs)
#pragma GCC pop_options
#endif

static void gemv_run(const struct ah_gemv *v, const ah_range_fn *rows, const char *kernel)
{
    ah_trace_kernel(kernel);
    ah_parallel_units(v->n, v->k * v->m, AH_SHARE_COPY, rows[v->m - 1], (void *)v);
}

void ah_gemv_f32(const struct ah_gemv *v)
{
    static const ah_range_fn rows[] = GEMV_TABLE(f32);
    gemv_run(v, rows, "own rows float32");
}

void ah_gemv_bf16(const struct ah_gemv *v)
{
    static const ah_range_fn rows[] = GEMV_TABLE(bf16);
#ifdef AH_LANES_PAIRS
    static const ah_range_fn pairs[] = GEMV_TABLE(pairs);
    if (ah_bf16_pairs()) {
        gemv_run(v, pairs, "own rows bfloat16 pairs");
        return;
    }
#endif
    gemv_run(v, rows, "own rows bfloat16");
}
