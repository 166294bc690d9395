/* Rows of a table by number, and sums of bags of them. All numbers are checked before a row is read. In the adjoints
 * each row sums its uses in order, whatever the number of threads. */
#include <omp.h>
#include <string.h>

#include "base/numeric/bits.h"
#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

/* Row numbers as int64, each inside 0..rows-1. */
static const int64_t *indices_open(struct ah_arrays *a, struct ah_tensor *index, int64_t rows)
{
    const int64_t *at = ah_array_ints(a, index);
    for (int64_t i = 0; a->status == 0 && i < index->numel; i++)
        if (at[i] < 0 || at[i] >= rows)
            a->status = ah_fail(AH_EINVAL, "embedding: index %lld at position %lld is outside 0..%lld",
                                (long long)at[i], (long long)i, (long long)(rows - 1));
    return at;
}

int ah_cpu_embedding(struct ah_call *c)
{
    const struct ah_args_embedding *arg = ah_args(c, embedding);
    struct ah_tensor *index = arg->input.tensor, *w = arg->weight.tensor, *out = c->out[0];
    struct ah_arrays a = {0};
    int64_t width = w->size[1];
    size_t item = ah_dtype_size(w->dtype);
    AH_TRY(ah_tensor_row_major(w));
    const int64_t *at = indices_open(&a, index, w->size[0]);
    if (a.status < 0)
        return ah_arrays_close(&a);
    const char *from = ah_tensor_data(w);
    char *to = ah_tensor_data(out);
    if (w->stride[1] == 1 || width <= 1) {
#pragma omp parallel for schedule(static) if (ah_worth_threads(out->numel, AH_SHARE_LIGHT))
        for (int64_t i = 0; i < index->numel; i++)
            ah_copy_bytes(to + (size_t)(i * width) * item, from + (size_t)(at[i] * w->stride[0]) * item,
                          (size_t)width * item);
    } else {
        for (int64_t i = 0; i < index->numel; i++)
            for (int64_t j = 0; j < width; j++)
                memcpy(to + (size_t)(i * width + j) * item,
                       from + (size_t)(at[i] * w->stride[0] + j * w->stride[1]) * item, item);
    }
    return ah_arrays_close(&a);
}

/* Uses of the rows of a table by number: those of row r are use[start[r]], ..., in their order. */
struct row_uses {
    const int64_t *at;
    int64_t count, rows, padding;
    int64_t *start, *use;
};

static void row_uses_sort(struct row_uses *u)
{
    memset(u->start, 0, (size_t)(u->rows + 2) * sizeof *u->start);
    for (int64_t i = 0; i < u->count; i++)
        u->start[u->at[i] + 2] += u->at[i] != u->padding;
    for (int64_t r = 2; r <= u->rows; r++)
        u->start[r + 1] += u->start[r];
    for (int64_t i = 0; i < u->count; i++) /* start[r + 1] is the place of the next use of r, at last the end */
        if (u->at[i] != u->padding)
            u->use[u->start[u->at[i] + 1]++] = i;
}

/* The end of the rows from `begin` on, of those up to `end`, that have no use: long stretches of zeros are written
 * without reading the memory first. */
static int64_t unused_end(const struct row_uses *u, int64_t begin, int64_t end)
{
    int64_t r = begin;
    while (r < end && u->start[r + 1] == u->start[begin])
        r++;
    return r;
}

/* Each row of the table's gradient is written once, or with `adds` the sum of its uses, rounded, is added to it. `room`
 * has a row for each thread where they are added or items are not of the type of sums. */
#define SUM_USES(suffix, item, real, WIDE, ADDED)                                                           \
    static void sum_row_##suffix(const item *g, const int64_t *use, int64_t uses, int64_t width, real *restrict sum) \
    {                                                                                                       \
        for (int64_t j = 0; uses == 1 && j < width; j++)                                                    \
            sum[j] = WIDE(g[use[0] * width + j]);                                                           \
        for (int64_t j = 0; uses > 1 && j < width; j++)                                                     \
            sum[j] = WIDE(g[use[0] * width + j]) + WIDE(g[use[1] * width + j]);                             \
        for (int64_t i = 2; i < uses; i++)                                                                  \
            for (int64_t j = 0; j < width; j++)                                                             \
                sum[j] += WIDE(g[use[i] * width + j]);                                                      \
    }                                                                                                       \
    static void sum_uses_##suffix(const struct row_uses *u, const item *g, int64_t width, item *gw,         \
                                  enum ah_dtype dtype, real *room, bool adds)                               \
    {                                                                                                       \
        int64_t work = (adds ? u->count : u->count + u->rows) * width;                                      \
        _Pragma("omp parallel num_threads(ah_worth_threads(work, AH_SHARE_LIGHT) ? ah_num_threads() : 1)")  \
        {                                                                                                   \
            int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();                             \
            int64_t end = u->rows * (part + 1) / parts;                                                     \
            for (int64_t r = u->rows * part / parts, unused; r < end; r++) {                                \
                unused = unused_end(u, r, end);                                                             \
                if (!adds)                                                                                  \
                    memset(gw + r * width, 0, (size_t)((unused - r) * width) * sizeof *gw);                 \
                r = unused;                                                                                 \
                if (r == end)                                                                               \
                    break;                                                                                  \
                const int64_t *use = u->use + u->start[r];                                                  \
                int64_t uses = u->start[r + 1] - u->start[r];                                               \
                item *restrict to = gw + r * width;                                                         \
                real *sum = room ? room + part * width : (real *)(void *)to;                                \
                if (uses == 1 && !adds) {                                                                   \
                    ah_copy_bytes((char *)to, (const char *)(g + use[0] * width), (size_t)width * sizeof *gw); \
                    continue;                                                                               \
                }                                                                                           \
                sum_row_##suffix(g, use, uses, width, sum);                                                 \
                for (int64_t j = 0; adds && j < width; j++)                                                 \
                    to[j] = ADDED(to[j], sum[j]);                                                           \
                if (room && !adds)                                                                          \
                    ah_cast(width, to, dtype, 1, sum, AH_F32, 1);                                           \
            }                                                                                               \
        }                                                                                                   \
    }
#define ADDED(a, b) ((a) + (b))
#define ADDED_BF16(a, b) ah_f32_to_bf16(ah_bf16_to_f32(a) + ah_bf16_to_f32(ah_f32_to_bf16(b)))
SUM_USES(f32, float, float, , ADDED)
SUM_USES(f64, double, double, , ADDED)
SUM_USES(bf16, uint16_t, float, ah_bf16_to_f32, ADDED_BF16)

/* The gradient of the table into or, with `adds`, onto out[0]. */
static int embedding_backward(struct ah_call *c, struct ah_tensor *gt, struct ah_tensor *index,
                              const struct ah_value *padding_idx, bool adds)
{
    struct ah_tensor *out = c->out[0];
    int64_t rows = out->size[0], width = out->size[1], padding = INT64_MIN;
    if (padding_idx->kind != AH_NONE)
        padding = padding_idx->integer + (padding_idx->integer < 0 ? rows : 0);
    struct ah_arrays a = {0};
    bool half = gt->dtype == AH_BF16, wide = ah_compute_dtype(gt->dtype) == AH_F64;
    struct row_uses u = {.at = indices_open(&a, index, rows), .count = index->numel, .rows = rows, .padding = padding};
    const void *g = half ? ah_array_as_is(&a, gt) : ah_array_in(&a, gt);
    void *gw = half || adds ? ah_tensor_data(out) : ah_array_out(&a, out), *room = NULL;
    if (half || adds)
        room = ah_array_scratch(&a, (size_t)(ah_num_threads() * width) * (wide ? sizeof(double) : sizeof(float)));
    u.start = ah_array_scratch(&a, (size_t)(rows + 2) * sizeof *u.start);
    u.use = ah_array_scratch(&a, (size_t)u.count * sizeof *u.use);
    if (a.status < 0)
        return ah_arrays_close(&a);
    row_uses_sort(&u);
    if (half)
        sum_uses_bf16(&u, g, width, gw, out->dtype, room, adds);
    else if (wide)
        sum_uses_f64(&u, g, width, gw, AH_F64, room, adds);
    else
        sum_uses_f32(&u, g, width, gw, AH_F32, room, adds);
    return ah_arrays_close(&a);
}

AH_CPU_OP_WITH(embedding_backward, embedding_backward,
               embedding_backward(c, arg->grad.tensor, arg->input.tensor, &arg->padding_idx, false))
AH_CPU_OP_WITH(embedding_backward_add, embedding_backward_add,
               embedding_backward(c, arg->grad.tensor, arg->input.tensor, &arg->padding_idx, true))

/* Sums of bags. */

struct bags {
    const int64_t *at, *starts;
    const void *scale; /* in the table's compute dtype, or NULL */
    int64_t count, width, padding;
};

/* Columns of a wide table are added in several passes, each of which reads a part of every row, which no processor
 * foresees: rows that are AHEAD uses away are fetched. */
enum { AHEAD = 16 };

static inline void bags_prefetch(const void *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)row + at);
}

/* `n` columns of the sum of a bag, at most 8 vectors, which stay in registers; WIDE converts an item of the table. */
#define BAG_COLUMNS(suffix, item, real, WIDE)                                                               \
    static inline void sum_columns_##suffix(const struct bags *bags, int64_t b, const item *w, int64_t n,   \
                                            real *out)                                                      \
    {                                                                                                       \
        const real *scale = bags->scale;                                                                    \
        real sum[512 / sizeof(real)] = {0};                                                                 \
        for (int64_t i = bags->starts[b]; scale && i < bags->starts[b + 1]; i++) {                          \
            const item *from = w + bags->at[i] * bags->width;                                               \
            if (bags->at[i] == bags->padding)                                                               \
                continue;                                                                                   \
            for (int64_t j = 0; j < n; j++)                                                                 \
                sum[j] += scale[i] * WIDE(from[j]);                                                         \
        }                                                                                                   \
        for (int64_t i = bags->starts[b]; !scale && i < bags->starts[b + 1]; i++) {                         \
            if (bags->at[i] == bags->padding)                                                               \
                continue;                                                                                   \
            const item *from = w + bags->at[i] * bags->width;                                               \
            if (i + AHEAD < bags->starts[b + 1])                                                            \
                bags_prefetch(w + bags->at[i + AHEAD] * bags->width, n * (int64_t)sizeof *w);               \
            for (int64_t j = 0; j < n; j++)                                                                 \
                sum[j] += WIDE(from[j]);                                                                    \
        }                                                                                                   \
        memcpy(out, sum, (size_t)n * sizeof *out);                                                          \
    }
BAG_COLUMNS(f32, float, float, )
BAG_COLUMNS(f64, double, double, )
BAG_COLUMNS(any_bf16, uint16_t, float, ah_bf16_to_f32)

/* Of bfloat16 without factors two neighbours are read as one number: the upper half is one of them. */
static inline void sum_columns_bf16(const struct bags *bags, int64_t b, const uint16_t *w, int64_t n, float *out)
{
    typedef uint32_t pair __attribute__((aligned(2), may_alias));
    float low[64] = {0}, high[64] = {0};
    if (bags->scale || n % 2) {
        sum_columns_any_bf16(bags, b, w, n, out);
        return;
    }
    for (int64_t i = bags->starts[b]; i < bags->starts[b + 1]; i++) {
        if (bags->at[i] == bags->padding)
            continue;
        const pair *from = (const pair *)(w + bags->at[i] * bags->width);
        if (i + AHEAD < bags->starts[b + 1])
            bags_prefetch(w + bags->at[i + AHEAD] * bags->width, n * (int64_t)sizeof *w);
        for (int64_t j = 0; j < n / 2; j++) {
            low[j] += ah_bits_float(from[j] << 16);
            high[j] += ah_bits_float(from[j] & 0xffff0000u);
        }
    }
    for (int64_t j = 0; j < n / 2; j++) {
        out[2 * j] = low[j];
        out[2 * j + 1] = high[j];
    }
}

#define BAG_SUMS(suffix, item, real)                                                                        \
    static void sum_bags_##suffix(const struct bags *bags, const item *w, real *out)                        \
    {                                                                                                       \
        enum { VECTOR = 64 / sizeof(real) };                                                                \
        int64_t width = bags->width, total = bags->starts[bags->count] - bags->starts[0];                   \
        _Pragma("omp parallel for schedule(static) if (ah_worth_threads(total * width, AH_SHARE_LIGHT))")   \
        for (int64_t b = 0; b < bags->count; b++) {                                                         \
            real *to = out + b * width;                                                                     \
            int64_t j = 0, most = width >= 8 * VECTOR ? 8 : width >= 4 * VECTOR ? 4 : width >= 2 * VECTOR ? 2 : 1; \
            for (int64_t n; j < width && width >= VECTOR; j += n) {                                         \
                int64_t rest = (width - j + VECTOR - 1) / VECTOR;                                           \
                n = rest > 2 && most > 2 ? 4 : rest;                                                        \
                n = (rest >= 8 && most == 8 ? 8 : n < most ? n : most) * VECTOR;                            \
                j = j + n <= width ? j : width - n; /* the last columns overlap those before */             \
                if (n == 8 * VECTOR)                                                                        \
                    sum_columns_##suffix(bags, b, w + j, 8 * VECTOR, to + j);                               \
                else if (n == 4 * VECTOR)                                                                   \
                    sum_columns_##suffix(bags, b, w + j, 4 * VECTOR, to + j);                               \
                else if (n == 2 * VECTOR)                                                                   \
                    sum_columns_##suffix(bags, b, w + j, 2 * VECTOR, to + j);                               \
                else                                                                                        \
                    sum_columns_##suffix(bags, b, w + j, VECTOR, to + j);                                   \
            }                                                                                               \
            if (j < width) /* of a narrow table */                                                          \
                sum_columns_##suffix(bags, b, w, width, to);                                                \
        }                                                                                                   \
    }
BAG_SUMS(f32, float, float)
BAG_SUMS(f64, double, double)
BAG_SUMS(bf16, uint16_t, float)

#define BAG_ADJOINT(suffix, real)                                                                           \
    static void spread_bags_##suffix(const struct bags *bags, const real *g, real *gw, int64_t rows)        \
    {                                                                                                       \
        const real *scale = bags->scale;                                                                    \
        int64_t width = bags->width, total = bags->starts[bags->count] - bags->starts[0];                   \
        _Pragma("omp parallel num_threads(ah_worth_threads(total * width, AH_SHARE_LIGHT) ? ah_num_threads() : 1)") \
        {                                                                                                   \
            int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();                             \
            int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;                           \
            memset(gw + begin * width, 0, (size_t)((end - begin) * width) * sizeof *gw);                    \
            for (int64_t b = 0; b < bags->count; b++) {                                                     \
                for (int64_t i = bags->starts[b]; i < bags->starts[b + 1]; i++) {                           \
                    int64_t at = bags->at[i];                                                               \
                    if (at < begin || at >= end || at == bags->padding)                                     \
                        continue;                                                                           \
                    const real *restrict from = g + b * width, factor = scale ? scale[i] : 1;               \
                    real *restrict to = gw + at * width;                                                    \
                    for (int64_t j = 0; j < width; j++)                                                     \
                        to[j] += factor * from[j];                                                          \
                }                                                                                           \
            }                                                                                               \
        }                                                                                                   \
    }
BAG_ADJOINT(f32, float)
BAG_ADJOINT(f64, double)

/* Open the inputs of bag_sum and its adjoint other than the table or the gradient; bags are in order within the
 * input. */
static void bags_open(struct bags *bags, struct ah_arrays *a, struct ah_tensor *index, struct ah_tensor *starts,
                      struct ah_tensor *scale, const struct ah_value *padding, int64_t rows)
{
    bags->padding = padding->kind == AH_NONE ? INT64_MIN : padding->integer + (padding->integer < 0 ? rows : 0);
    bags->count = starts->size[0] - 1;
    bags->at = indices_open(a, index, rows);
    bags->starts = ah_array_ints(a, starts);
    bags->scale = ah_array_in(a, scale);
    for (int64_t b = 0; a->status == 0 && b <= bags->count; b++)
        if (bags->starts[b] < (b ? bags->starts[b - 1] : 0) || bags->starts[b] > index->numel)
            a->status = ah_fail(AH_EINVAL, "embedding_bag: offset %lld of bag %lld is not in order within 0..%lld",
                                (long long)bags->starts[b], (long long)b, (long long)index->numel);
}

int ah_cpu_bag_sum(struct ah_call *c)
{
    const struct ah_args_bag_sum *arg = ah_args(c, bag_sum);
    struct ah_tensor *w = arg->weight.tensor;
    struct bags bags = {.width = w->size[1]};
    struct ah_arrays a = {0};
    bags_open(&bags, &a, arg->input.tensor, arg->starts.tensor, ah_given(&arg->scale), &arg->padding_idx, w->size[0]);
    const void *table = w->dtype == AH_BF16 ? ah_array_as_is(&a, w) : ah_array_in(&a, w);
    void *sums = ah_array_out(&a, c->out[0]);
    if (a.status == 0 && w->dtype == AH_BF16)
        sum_bags_bf16(&bags, table, sums);
    else if (a.status == 0)
        AH_BY_REAL(w->dtype, sum_bags, &bags, table, sums);
    return ah_arrays_close(&a);
}

int ah_cpu_bag_sum_backward(struct ah_call *c)
{
    const struct ah_args_bag_sum_backward *arg = ah_args(c, bag_sum_backward);
    struct ah_tensor *gt = arg->grad.tensor, *out = c->out[0];
    struct bags bags = {.width = out->size[1]};
    struct ah_arrays a = {0};
    bags_open(&bags, &a, arg->input.tensor, arg->starts.tensor, ah_given(&arg->scale), &arg->padding_idx, out->size[0]);
    const void *g = ah_array_in(&a, gt);
    void *gw = ah_array_out(&a, out);
    if (a.status == 0)
        AH_BY_REAL(gt->dtype, spread_bags, &bags, g, gw, out->size[0]);
    return ah_arrays_close(&a);
}
