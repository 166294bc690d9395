/* Products of few vectors with the rows of a matrix. For one vector the rows of a range are read as four streams, each
 * of a quarter of the range: weights that are mapped from a file, in pages of 4 KiB, are read a fifth faster so, since
 * the processor's prefetchers end at each page (measured on a Zen 4; neighbouring rows at once are read half as fast).
 */
#include "cpu/linear/gemv.h"

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/lanes.h"

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
    for (int f = 0; f < rows; f++)
        for (int r = 0; r < m; r++) {
            float total = gemv_sum(sum[f][r][0] + sum[f][r][1]);
            for (int64_t j = i; j < k; j++)
                total += w[f * distance + j] * x[r * v->ldx + j];
            ((float *)v->y)[r * v->ldy + row + f * far] = bias ? total + bias[row + f * far] : total;
        }
}

/* The same of bfloat16 rows, two numbers in 32 bits: `x` has the even numbers of each vector in float32, then the odd
 * ones, `half` of each. */
static inline __attribute__((always_inline)) void row_bf16(const struct ah_gemv *v, const float *x, int64_t half,
                                                           int64_t row, int64_t far, int rows, int m)
{
    typedef ah_lane_bits_f32 bits_at __attribute__((aligned(2), may_alias));
    const uint16_t *w = (const uint16_t *)v->w + row * v->ldw, *bias = v->bias;
    ah_lanes_f32 sum[ROWS][AH_GEMV_MOST][SUMS] = {{{{0}}}};
    int64_t i = 0, k = v->k, distance = far * v->ldw;
    for (; i + SUMS * LANES <= k; i += SUMS * LANES) {
        ah_lane_bits_f32 pair[ROWS];
        for (int f = 0; f < rows; f++)
            pair[f] = *(const bits_at *)(const void *)(w + f * distance + i);
        for (int r = 0; r < m; r++) {
            const float *at = x + 2 * r * half + i / 2;
            ah_lanes_f32 even = *(const ah_lanes_at_f32 *)(const void *)at;
            ah_lanes_f32 odd = *(const ah_lanes_at_f32 *)(const void *)(at + half);
            for (int f = 0; f < rows; f++) {
                sum[f][r][0] = ah_fma_f32((ah_lanes_f32)(pair[f] << 16), even, sum[f][r][0]);
                sum[f][r][1] = ah_fma_f32((ah_lanes_f32)(pair[f] & 0xffff0000u), odd, sum[f][r][1]);
            }
        }
    }
    for (int f = 0; f < rows; f++)
        for (int r = 0; r < m; r++) {
            float total = gemv_sum(sum[f][r][0] + sum[f][r][1]);
            for (int64_t j = i; j < k; j++)
                total += ah_bf16_to_f32(w[f * distance + j]) * x[2 * r * half + (j % 2) * half + j / 2];
            if (bias)
                total += ah_bf16_to_f32(bias[row + f * far]);
            ((uint16_t *)v->y)[r * v->ldy + row + f * far] = ah_f32_to_bf16(total);
        }
}

/* A product, and its vectors in float32 where it is one of bfloat16. */
struct gemv_call {
    const struct ah_gemv *v;
    const float *x;
    int64_t half;
};

#define GEMV_ROWS(name, function, m, ...)                                 \
    static void name(void *context, int64_t begin, int64_t end)           \
    {                                                                     \
        const struct gemv_call *call = context;                           \
        const struct ah_gemv *v = call->v;                                \
        const int rows = m == 1 ? ROWS : 1;                               \
        int64_t far = (end - begin) / rows, row = begin;                  \
        for (; row < begin + far; row++)                                  \
            function(v, __VA_ARGS__ row, far, rows, m);                   \
        for (row = begin + rows * far; row < end; row++)                  \
            function(v, __VA_ARGS__ row, 0, 1, m);                        \
    }
#define GEMV_BY_COUNT(suffix, ...)                                        \
    GEMV_ROWS(rows_##suffix##_1, row_##suffix, 1, __VA_ARGS__)            \
    GEMV_ROWS(rows_##suffix##_2, row_##suffix, 2, __VA_ARGS__)            \
    GEMV_ROWS(rows_##suffix##_3, row_##suffix, 3, __VA_ARGS__)            \
    GEMV_ROWS(rows_##suffix##_4, row_##suffix, 4, __VA_ARGS__)
GEMV_BY_COUNT(f32, )
GEMV_BY_COUNT(bf16, call->x, call->half, )

static const ah_range_fn gemv_rows[2][AH_GEMV_MOST] = {
    {rows_f32_1, rows_f32_2, rows_f32_3, rows_f32_4}, {rows_bf16_1, rows_bf16_2, rows_bf16_3, rows_bf16_4}};

static void gemv_run(struct gemv_call *call, bool half)
{
    const struct ah_gemv *v = call->v;
    ah_trace_kernel(half ? "own rows bfloat16" : "own rows float32");
    ah_parallel_for(v->n, ah_grain(v->k * v->m, AH_SHARE_COPY), gemv_rows[half][v->m - 1], call);
}

void ah_gemv_f32(const struct ah_gemv *v)
{
    struct gemv_call call = {.v = v};
    gemv_run(&call, false);
}

int ah_gemv_bf16(const struct ah_gemv *v)
{
    AH_CLEANUP(ah_dense_close) struct ah_dense scratch = {0};
    struct gemv_call call = {.v = v, .half = (v->k + 1) / 2};
    AH_TRY(ah_dense_scratch(&scratch, (size_t)(2 * call.half * v->m) * sizeof(float)));
    float *x = (float *)(void *)scratch.block;
    for (int64_t r = 0; r < v->m; r++)
        for (int64_t j = 0; j < v->k; j++)
            x[2 * r * call.half + (j % 2) * call.half + j / 2] =
                ah_bf16_to_f32(((const uint16_t *)v->x)[r * v->ldx + j]);
    call.x = x;
    gemv_run(&call, true);
    return 0;
}
