/* Softmax, its logarithm, their adjoints, and softmax under a mask: rows when the dim is dense, else 64 neighbouring
 * columns together; short rows as such columns. A row that is masked entirely becomes zeros, as in PyTorch 2's
 * attention; by plain softmax NaN. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/row_max.h"
#include "ops/dispatch/op.h"

/* VECTOR: the floats of the widest vector. SHORT, PACK: rows of up to SHORT items are computed as columns, PACK at a
 * time. */
enum { LANES = 64, VECTOR = 16, SHORT = 48, PACK = 32 };

#define LOOPS "cpu/reduce/softmax_loops.h"
#include "cpu/loop/for_reals.h"

/* Under a mask. */

/* Scores of one row, -inf where the mask drops; a float mask is added. */
#define MASK_ROW(suffix, real)                                                                                   \
    static void mask_row_##suffix(const real *restrict x, real *restrict y, int64_t n, const uint8_t *keep,      \
                                  const real *added, int64_t stride)                                             \
    {                                                                                                            \
        for (int64_t i = 0; i < n; i++)                                                                          \
            y[i] = keep ? (keep[i * stride] ? x[i] : (real)-INFINITY) : x[i] + added[i * stride];                \
    }                                                                                                            \
    static void masked_rows_##suffix(const struct masked *m, const real *x, real *y, const void *mask)           \
    {                                                                                                            \
        _Pragma("omp parallel for schedule(static) if (ah_worth_threads(m->rows * m->length, AH_SHARE_HEAVY))")   \
        for (int64_t row = 0; row < m->rows; row++) {                                                            \
            const real *from = x + row * m->length;                                                              \
            real *to = y + row * m->length;                                                                      \
            int64_t n = m->length;                                                                               \
            if (m->causal)                                                                                       \
                n = row % m->queries + 1 < n ? row % m->queries + 1 : n;                                         \
            if (mask) {                                                                                          \
                int64_t at = mask_offset(m, row);                                                                \
                mask_row_##suffix(from, to, n, m->boolean ? (const uint8_t *)mask + at : NULL,                   \
                                  m->boolean ? NULL : (const real *)mask + at, m->stride[m->ndim - 1]);          \
                from = to;                                                                                       \
            }                                                                                                    \
            /* Masked entirely: zeros. Without a mask the row is checked again only if it became NaN. */  \
            if (mask && ah_row_max_##suffix(from, n) == (real)-INFINITY)                                         \
                n = 0;                                                                                           \
            softmax_in_place_##suffix(from, to, n);                                                              \
            if (!mask && n > 0 && to[0] != to[0] && ah_row_max_##suffix(from, n) == (real)-INFINITY)             \
                n = 0;                                                                                           \
            memset(to + n, 0, (size_t)(m->length - n) * sizeof *to);                                             \
        }                                                                                                        \
    }

struct masked {
    int64_t rows, length, queries;
    bool causal, boolean;
    int ndim;
    const int64_t *size;
    int64_t stride[AH_MAX_DIMS]; /* of the mask, stretched to the scores */
};

static int64_t mask_offset(const struct masked *m, int64_t row)
{
    int64_t at = 0;
    for (int d = m->ndim - 2; d >= 0; d--) {
        at += row % m->size[d] * m->stride[d];
        row /= m->size[d];
    }
    return at;
}

/* from may be to. */
static void softmax_in_place_f32(const float *from, float *to, int64_t n)
{
    if (from == to)
        softmax_same_f32(to, n);
    else
        softmax_row_f32(from, to, n);
}

static void softmax_in_place_f64(const double *from, double *to, int64_t n)
{
    if (from == to)
        softmax_same_f64(to, n);
    else
        softmax_row_f64(from, to, n);
}

MASK_ROW(f32, float)
MASK_ROW(f64, double)

int ah_cpu_masked_softmax(struct ah_call *c)
{
    const struct ah_args_masked_softmax *arg = ah_args(c, masked_softmax);
    struct ah_tensor *xt = arg->input.tensor, *mt = arg->mask.tensor, *out = c->out[0];
    struct ah_dense x = {0}, mask = {0};
    struct ah_dense_out y = {0};
    struct masked m = {.length = xt->size[xt->ndim - 1], .queries = xt->size[xt->ndim - 2],
                       .causal = arg->causal.flag, .boolean = mt && mt->dtype == AH_BOOL, .ndim = xt->ndim,
                       .size = xt->size};
    int status;
    if (out->numel == 0)
        return 0;
    m.rows = out->numel / m.length;
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&mask, mt), out);
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    if (mt) {
        /* The mask as a row-major array, walked with the scores. */
        struct ah_tensor plain = *mt;
        ah_contiguous_strides(plain.size, plain.ndim, plain.stride);
        ah_broadcast_strides(&plain, xt->size, xt->ndim, m.stride);
    }
    if (ah_compute_dtype(out->dtype) == AH_F32)
        masked_rows_f32(&m, x.data, y.data, mask.data);
    else
        masked_rows_f64(&m, x.data, y.data, mask.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&mask);
    ah_dense_close(&x);
    return status;
}

/* Over any dim. */

struct extent {
    int64_t outer, length, inner;
};

static struct extent extent_at(const struct ah_tensor *t, int64_t dim)
{
    struct extent e = {1, 1, 1};
    if (t->ndim == 0)
        return e;
    if (dim < 0)
        dim += t->ndim;
    for (int64_t d = 0; d < t->ndim; d++)
        *(d < dim ? &e.outer : d == dim ? &e.length : &e.inner) *= t->size[d];
    return e;
}

static int softmax_run_forward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax *arg = ah_args(c, softmax);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0], *cast = NULL;
    struct ah_dense x = {0};
    struct ah_dense_out y = {0};
    struct extent e = extent_at(out, arg->dim.integer);
    int status;
    if (out->numel == 0)
        return 0;
    if (xt->dtype != out->dtype) {
        AH_TRY(ah_op1(AH_OP_to, &cast, AH_T(xt), AH_D(out->dtype)));
        xt = cast;
    }
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    if (ah_compute_dtype(out->dtype) == AH_F32)
        softmax_all_f32(x.data, y.data, e.outer, e.length, e.inner, log);
    else
        softmax_all_f64(x.data, y.data, e.outer, e.length, e.inner, log);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&x);
    ah_tensor_release(cast);
    return status;
}

int ah_cpu_softmax(struct ah_call *c)
{
    return softmax_run_forward(c, false);
}

int ah_cpu_log_softmax(struct ah_call *c)
{
    return softmax_run_forward(c, true);
}

static int softmax_run_backward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax_backward *arg = ah_args(c, softmax_backward);
    struct ah_tensor *out = c->out[0];
    struct ah_dense g = {0}, y = {0};
    struct ah_dense_out gx = {0};
    struct extent e = extent_at(out, arg->dim.integer);
    int status;
    if (out->numel == 0)
        return 0;
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&y, arg->output.tensor), out);
    AH_TRYGO(ah_dense_out_open(&gx, out), out);
    if (ah_compute_dtype(out->dtype) == AH_F32)
        softmax_all_backward_f32(g.data, y.data, gx.data, e.outer, e.length, e.inner, log);
    else
        softmax_all_backward_f64(g.data, y.data, gx.data, e.outer, e.length, e.inner, log);
out:
    ah_dense_out_close(&gx);
    ah_dense_close(&y);
    ah_dense_close(&g);
    return status;
}

int ah_cpu_softmax_backward(struct ah_call *c)
{
    return softmax_run_backward(c, false);
}

int ah_cpu_log_softmax_backward(struct ah_call *c)
{
    return softmax_run_backward(c, true);
}
