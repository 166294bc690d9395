/* Running sums, products, extremes and log-sums along one dim. A line along the dim is walked from one end, in double
 * for floats and int64 for the rest; lines are independent, so the bits do not depend on the threads. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "ops/dispatch/op.h"

enum { WIDTH = 64, LINES = 4 };

/* Row-major (outer, n, inner); indices are written to `at` where the kind has them. `reverse`: from the last entry on
 * (not of extremes). */
struct lines {
    const void *x;
    void *y;
    int64_t *at;
    int64_t n, inner;
    bool reverse;
};

static const void *line_of(const struct lines *l, int64_t line, size_t item, int64_t *first)
{
    *first = line / l->inner * l->n * l->inner + line % l->inner;
    return (const char *)l->x + (size_t)*first * item;
}

/* Return the number of lines from `line` on that are side by side. */
static int64_t running_together(const struct lines *l, int64_t line, int64_t end)
{
    int64_t count = l->inner - line % l->inner;
    count = count < end - line ? count : end - line;
    return count < WIDTH ? count : WIDTH;
}

/* y_k = step(s = y_(k-1), x_k), beginning with `start`. Lines side by side (inner > 1) advance together; of others a
 * few do, since each of their steps waits for the one before. */
#define RUNNING(name, type, acc_t, start, step)                                           \
    static inline void name##_lines(const struct lines *l, const type *restrict from, type *restrict to)  \
    {                                                                                     \
        acc_t sums[LINES];                                                                \
        for (int j = 0; j < LINES; j++)                                                   \
            sums[j] = (start);                                                            \
        for (int64_t i = 0; i < l->n; i++) {                                              \
            int64_t k = l->reverse ? l->n - 1 - i : i;                                    \
            for (int j = 0; j < LINES; j++) {                                             \
                acc_t x = (acc_t)from[j * l->n + k], s = sums[j];                         \
                s = (step);                                                               \
                sums[j] = s;                                                              \
                to[j * l->n + k] = (type)s;                                               \
            }                                                                             \
        }                                                                                 \
    }                                                                                     \
    static void name(void *context, int64_t begin, int64_t end)                           \
    {                                                                                     \
        const struct lines *l = context;                                                  \
        const int64_t inner = l->inner, next = l->reverse ? -inner : inner;               \
        for (int64_t line = begin, count; line < end; line += count) {                    \
            int64_t first;                                                                \
            const type *restrict from = line_of(l, line, sizeof(type), &first);           \
            type *restrict to = (type *)l->y + first;                                     \
            acc_t sums[WIDTH];                                                            \
            if (inner == 1 && line + LINES <= end) {                                      \
                name##_lines(l, from, to);                                                \
                count = LINES;                                                            \
                continue;                                                                 \
            }                                                                             \
            count = running_together(l, line, end);                                       \
            from += l->reverse ? (l->n - 1) * inner : 0;                                  \
            to += l->reverse ? (l->n - 1) * inner : 0;                                    \
            for (int64_t j = 0; j < count; j++)                                           \
                sums[j] = (start);                                                        \
            acc_t s = (start);                                                            \
            for (int64_t k = 0; inner == 1 && k < l->n; k++) {                            \
                acc_t x = (acc_t)from[k * next];                                          \
                s = (step);                                                               \
                to[k * next] = (type)s;                                                   \
            }                                                                             \
            for (int64_t k = 0; inner > 1 && k < l->n; k++) {                             \
                for (int64_t j = 0; j < count; j++) {                                     \
                    acc_t x = (acc_t)from[k * next + j];                                  \
                    s = sums[j];                                                          \
                    s = (step);                                                           \
                    sums[j] = s;                                                          \
                    to[k * next + j] = (type)s;                                           \
                }                                                                         \
            }                                                                             \
        }                                                                                 \
    }

static double log_sum(double s, double x)
{
    double high = x > s ? x : s, low = x > s ? s : x;
    if (x != x || s != s)
        return x + s;
    return high == low && isinf(high) ? high : high + log1p(exp(low - high));
}

RUNNING(sum_f32, float, double, 0, s + x)
RUNNING(sum_f64, double, double, 0, s + x)
RUNNING(sum_i64, int64_t, uint64_t, 0, s + x)
RUNNING(product_f32, float, double, 1, s *x)
RUNNING(product_f64, double, double, 1, s *x)
RUNNING(product_i64, int64_t, uint64_t, 1, s *x)
RUNNING(log_sum_f32, float, double, -INFINITY, log_sum(s, x))
RUNNING(log_sum_f64, double, double, -INFINITY, log_sum(s, x))

/* The extreme so far and where it is: the last one among equals; a nan stays, and moves on to a later one. */
#define EXTREME(name, type, better)                                                       \
    static void name(void *context, int64_t begin, int64_t end)                           \
    {                                                                                     \
        const struct lines *l = context;                                                  \
        for (int64_t line = begin, count; line < end; line += count) {                    \
            int64_t first, inner = l->inner, places[WIDTH] = {0};                         \
            const type *restrict from = line_of(l, line, sizeof(type), &first);           \
            type *restrict to = (type *)l->y + first, best[WIDTH];                        \
            int64_t *restrict at = l->at + first;                                         \
            count = running_together(l, line, end);                                       \
            memcpy(best, from, (size_t)count * sizeof *best);                             \
            type s = from[0];                                                             \
            int64_t place = 0;                                                            \
            for (int64_t k = 0; inner == 1 && k < l->n; k++) {                            \
                type x = from[k];                                                         \
                if (x better s || x != x) { /* seldom: no chain from one to the next */   \
                    s = x;                                                                \
                    place = k;                                                            \
                }                                                                         \
                to[k] = s;                                                                \
                at[k] = place;                                                            \
            }                                                                             \
            for (int64_t k = 0; inner > 1 && k < l->n; k++) {                             \
                for (int64_t j = 0; j < count; j++) {                                     \
                    type x = from[k * inner + j];                                         \
                    s = best[j];                                                          \
                    int taken = (x better s) | (x != x);                                  \
                    best[j] = taken ? x : s;                                              \
                    places[j] = taken ? k : places[j];                                    \
                    to[k * inner + j] = best[j];                                          \
                    at[k * inner + j] = places[j];                                        \
                }                                                                         \
            }                                                                             \
        }                                                                                 \
    }
#define EXTREMES(suffix, type)           \
    EXTREME(largest_##suffix, type, >=)  \
    EXTREME(smallest_##suffix, type, <=)
EXTREMES(f32, float)
EXTREMES(f64, double)
EXTREMES(i64, int64_t)

struct bodies {
    ah_range_fn f32, f64, i64;
};

/* Run over the input, converted to the result's dtype first, and store into out[0] (and out[1], the places). */
static int running_run(struct ah_call *c, struct bodies bodies, struct lines *l)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *x = NULL, *y = NULL, *same = NULL;
    enum ah_dtype dtype = ah_compute_dtype(out->dtype);
    ah_range_fn body = dtype == AH_F32 ? bodies.f32 : dtype == AH_F64 ? bodies.f64 : bodies.i64;
    int dim = out->ndim > 0 ? __builtin_ctz(c->state.reduce.dims) : 0;
    if (!ah_dtype_is_float(dtype))
        dtype = AH_I64;
    l->n = out->ndim > 0 ? out->size[dim] : 1;
    l->inner = 1;
    for (int d = dim + 1; d < out->ndim; d++)
        l->inner *= out->size[d];
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_contiguous_as(&same, ah_args(c, cumprod)->input.tensor, out->dtype));
    AH_TRY(ah_contiguous_as(&x, same, dtype));
    bool direct = out->dtype == dtype && ah_tensor_is_contiguous(out);
    if (direct)
        ah_tensor_retain(y = out);
    else
        AH_TRY(ah_tensor_empty(&y, out->size, out->ndim, dtype, &ah_cpu));
    l->x = ah_tensor_data(x);
    l->y = ah_tensor_data(y);
    ah_parallel_units(out->numel / l->n, l->n, AH_SHARE_MIDDLE, body, l);
    return direct ? 0 : ah_copy(out, y);
}

AH_CPU_OP(cumsum, running_run(c, (struct bodies){sum_f32, sum_f64, sum_i64}, &(struct lines){.n = 0}))
AH_CPU_OP(cumsum_reverse, running_run(c, (struct bodies){sum_f32, sum_f64, sum_i64}, &(struct lines){.reverse = true}))
AH_CPU_OP(cumprod, running_run(c, (struct bodies){product_f32, product_f64, product_i64}, &(struct lines){.n = 0}))
AH_CPU_OP(logcumsumexp, running_run(c, (struct bodies){log_sum_f32, log_sum_f64, NULL}, &(struct lines){.n = 0}))

static int running_extremes(struct ah_call *c, bool largest)
{
    struct lines l = {.at = ah_tensor_data(c->out[1])};
    return running_run(c,
                       largest ? (struct bodies){largest_f32, largest_f64, largest_i64}
                               : (struct bodies){smallest_f32, smallest_f64, smallest_i64},
                       &l);
}

AH_CPU_OP(cummax, running_extremes(c, true))
AH_CPU_OP(cummin, running_extremes(c, false))
