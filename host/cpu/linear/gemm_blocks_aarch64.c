/* bfmmla multiplies two rows of A by two columns of B over a depth of 4. Lines (rows of A, columns of B) are packed in
 * groups of 8: STEP items of each line, then the next STEP, so that a register is a pair of lines; 16 registers hold
 * the sums of 8 x 8 elements. Lines and depths that are missing are zeros. */
#include "cpu/linear/gemm_blocks.h"

#include <string.h>

#include "base/numeric/half.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/lanes.h"

enum {
    STEP = 4,   /* of the depth in one instruction */
    LINES = 8,
    PAIRS = LINES / 2,
    PANEL = 64, /* rows of A that are packed at a time, for all columns of B */
};

#ifdef AH_LANES_PAIRS
bool ah_gemm_blocks_found(void)
{
    return ah_bf16_pairs();
}

/* Items of a packed group. */
static int64_t blocks_group(int64_t k)
{
    return (k + STEP - 1) / STEP * STEP * LINES;
}

size_t ah_gemm_blocks_scratch(int64_t k)
{
    return (size_t)(blocks_group(k) * (PANEL / LINES + 1)) * sizeof(uint16_t);
}

/* Pack `lines` lines, at most LINES, that are `line` items apart; their items are `step` apart. */
static void blocks_pack(uint16_t *to, const uint16_t *from, int64_t line, int64_t step, int64_t lines, int64_t k)
{
    for (int64_t d = 0; d < k; d += STEP)
        for (int64_t i = 0; i < LINES; i++, to += STEP)
            if (i < lines && step == 1 && d + STEP <= k)
                memcpy(to, from + i * line + d, STEP * sizeof *to);
            else
                for (int64_t j = 0; j < STEP; j++)
                    to[j] = i < lines && d + j < k ? from[i * line + (d + j) * step] : 0;
}

#pragma GCC push_options
AH_LANES_PAIRS
static void blocks_tile(const uint16_t *a, const uint16_t *b, int64_t items, float (*out)[LINES])
{
    float32x4_t sum[PAIRS][PAIRS];
#pragma GCC unroll 4
    for (int i = 0; i < PAIRS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++)
            sum[i][j] = vdupq_n_f32(0);
    for (int64_t at = 0; at < items; at += LINES * STEP) {
        bfloat16x8_t row[PAIRS], column[PAIRS];
#pragma GCC unroll 4
        for (int i = 0; i < PAIRS; i++) {
            row[i] = vreinterpretq_bf16_u16(vld1q_u16(a + at + i * 2 * STEP));
            column[i] = vreinterpretq_bf16_u16(vld1q_u16(b + at + i * 2 * STEP));
        }
#pragma GCC unroll 4
        for (int i = 0; i < PAIRS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < PAIRS; j++)
                sum[i][j] = vbfmmlaq_f32(sum[i][j], row[i], column[j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < PAIRS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++) {
            vst1_f32(out[2 * i] + 2 * j, vget_low_f32(sum[i][j]));
            vst1_f32(out[2 * i + 1] + 2 * j, vget_high_f32(sum[i][j]));
        }
}
#pragma GCC pop_options

/* Write `count` elements of a row of C from `at` on. */
static void blocks_write(const struct ah_gemm_blocks *p, int64_t at, int64_t column, const float *sum, int64_t count)
{
    for (int64_t j = 0; j < count; j++) {
        float value = sum[j] + (p->bias ? ah_bf16_to_f32(p->bias[column + j]) : 0);
        if (p->wide)
            ((float *)p->c)[at + j] = value;
        else
            ((uint16_t *)p->c)[at + j] = ah_f32_to_bf16(value);
    }
}

static int64_t blocks_left(int64_t size, int64_t from, int64_t most)
{
    return size - from < most ? size - from : most;
}

void ah_gemm_blocks_run(const struct ah_gemm_blocks *p, void *scratch)
{
    int64_t group = blocks_group(p->k);
    uint16_t *column_group = scratch, *row_groups = column_group + group;
    float sum[LINES][LINES];
    for (int64_t panel = 0; panel < p->m; panel += PANEL) {
        int64_t rows = blocks_left(p->m, panel, PANEL);
        for (int64_t i = 0; i < rows; i += LINES)
            blocks_pack(row_groups + i / LINES * group, p->a + (panel + i) * p->a_row, p->a_row, p->a_step,
                        blocks_left(rows, i, LINES), p->k);
        for (int64_t column = 0; column < p->n; column += LINES) {
            int64_t columns = blocks_left(p->n, column, LINES);
            blocks_pack(column_group, p->b + column * p->b_column, p->b_column, p->b_step, columns, p->k);
            for (int64_t i = 0; i < rows; i++) {
                if (i % LINES == 0)
                    blocks_tile(row_groups + i / LINES * group, column_group, group, sum);
                blocks_write(p, (panel + i) * p->ldc + column, column, sum[i % LINES], columns);
            }
        }
    }
}
#else
bool ah_gemm_blocks_found(void)
{
    return false;
}

size_t ah_gemm_blocks_scratch(int64_t k)
{
    return 0;
}

void ah_gemm_blocks_run(const struct ah_gemm_blocks *p, void *scratch)
{
}
#endif
