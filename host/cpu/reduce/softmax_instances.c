/* Softmax, its logarithm, their adjoints, and softmax under a mask: rows when the dim is dense, else 64 neighbouring
 * columns together; short rows as such columns. A row that is masked entirely becomes zeros, as in PyTorch 2's
 * attention; by plain softmax NaN. */
#include "cpu/reduce/softmax.h"

#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/row_exp.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/row_max.h"

/* VECTOR: the floats of the widest vector. SHORT, PACK: rows of up to SHORT items are computed as columns, PACK at a
 * time. */
enum { LANES = 64, VECTOR = 16, SHORT = 48, PACK = 32 };

#define LOOPS "cpu/loop/row_items.h"
#include "cpu/loop/for_reals.h"
#define LOOPS "cpu/reduce/softmax_loops.h"
#include "cpu/loop/for_reals.h"

/* Of rows that are converted. */

bool ah_softmax_by_rows(int64_t n, int64_t inner)
{
    return inner == 1 && n >= SHORT;
}

/* Conversions of less than 1,024 items cost a call and, at their ends, loads that wait for several stores. */
int64_t ah_softmax_block(int64_t n)
{
    enum { ITEMS = 1024 };
    return n < ITEMS ? ITEMS / n : 1;
}

void ah_softmax_rows(const struct ah_softmax_items *of, int64_t rows, int64_t n, bool take_log)
{
    const int64_t block = ah_softmax_block(n);
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * n, AH_SHARE_HEAVY))
    for (int64_t first = 0; first < rows; first += block) {
        int64_t items = (rows - first < block ? rows - first : block) * n;
        float *room = of->room + ah_thread_index() * AH_SOFTMAX_ROOM * block * n;
        const float *x = ah_row_in_f32(&of->x, first * n, items, room);
        float *y = ah_row_room_f32(&of->out, first * n, room + block * n);
        for (int64_t at = 0; at < items; at += n) {
            if (take_log)
                log_softmax_row_f32(x + at, y + at, n);
            else
                softmax_row_f32(x + at, y + at, n);
        }
        ah_row_out_f32(&of->out, first * n, items, y);
    }
}

void ah_softmax_rows_backward(const struct ah_softmax_items *of, int64_t rows, int64_t n, bool take_log)
{
    const int64_t block = ah_softmax_block(n);
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * n, AH_SHARE_HEAVY))
    for (int64_t first = 0; first < rows; first += block) {
        int64_t items = (rows - first < block ? rows - first : block) * n;
        float *room = of->room + ah_thread_index() * AH_SOFTMAX_ROOM * block * n;
        const float *g = ah_row_in_f32(&of->x, first * n, items, room);
        const float *y = ah_row_in_f32(&of->y, first * n, items, room + block * n);
        float *gx = ah_row_room_f32(&of->out, first * n, room + 2 * block * n);
        for (int64_t at = 0; at < items; at += n) {
            if (take_log)
                log_softmax_row_backward_f32(g + at, y + at, gx + at, n);
            else
                softmax_row_backward_f32(g + at, y + at, gx + at, n);
        }
        ah_row_out_f32(&of->out, first * n, items, gx);
    }
}

/* Under a mask. */

static int64_t mask_offset(const struct ah_masked *m, int64_t row)
{
    int64_t at = 0;
    for (int d = m->ndim - 2; d >= 0; d--) {
        at += row % m->size[d] * m->stride[d];
        row /= m->size[d];
    }
    return at;
}

/* Scores of one row, -inf where the mask drops; a float mask is added. */
#define MASK_ROW(suffix, real)                                                                                       \
    static void mask_row_##suffix(const real *restrict x, real *restrict y, int64_t n, const uint8_t *keep,          \
                                  const real *added, int64_t stride)                                                 \
    {                                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                              \
            y[i] = keep ? (keep[i * stride] ? x[i] : (real)-INFINITY) : x[i] + added[i * stride];                    \
    }                                                                                                                \
    void ah_masked_rows_##suffix(const struct ah_masked *m, const real *x, real *y, const void *mask)                \
    {                                                                                                                \
        _Pragma("omp parallel for schedule(static) if (ah_worth_threads(m->rows * m->length, AH_SHARE_HEAVY))")      \
        for (int64_t row = 0; row < m->rows; row++) {                                                                \
            const real *from = x + row * m->length;                                                                  \
            real *to = y + row * m->length;                                                                          \
            int64_t n = m->length;                                                                                   \
            if (m->causal)                                                                                           \
                n = row % m->queries + 1 < n ? row % m->queries + 1 : n;                                             \
            if (mask) {                                                                                              \
                int64_t at = mask_offset(m, row);                                                                    \
                mask_row_##suffix(from, to, n, m->boolean ? (const uint8_t *)mask + at : NULL,                       \
                                  m->boolean ? NULL : (const real *)mask + at, m->stride[m->ndim - 1]);              \
                from = to;                                                                                           \
            }                                                                                                        \
            /* Masked entirely: zeros. Without a mask the row is checked again only if it became NaN. */             \
            if (mask && ah_row_max_##suffix(from, n) == (real)-INFINITY)                                             \
                n = 0;                                                                                               \
            softmax_row_##suffix(from, to, n);                                                                    \
            if (!mask && n > 0 && to[0] != to[0] && ah_row_max_##suffix(from, n) == (real)-INFINITY)                 \
                n = 0;                                                                                               \
            memset(to + n, 0, (size_t)(m->length - n) * sizeof *to);                                                 \
        }                                                                                                            \
    }

MASK_ROW(f32, float)
MASK_ROW(f64, double)
