/* Rows of a table by number, and sums of bags of them. All numbers are checked before a row is read. In the adjoints
 * each thread has a range of rows and reads all numbers, so that every row sums its uses in order. */
#include <omp.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "ops/dispatch/op.h"

/* Row numbers as int64, each inside 0..rows-1. */
static int indices_open(struct ah_dense *held, const int64_t **out, struct ah_tensor *index, int64_t rows)
{
    const int64_t *at;
    *held = (struct ah_dense){0};
    if (index->dtype == AH_I64 && ah_tensor_is_contiguous(index)) {
        at = ah_tensor_data(index);
    } else {
        AH_TRY(ah_dense_scratch(held, (size_t)index->numel * sizeof *at));
        int64_t *to = held->block;
        for (int64_t i = 0; i < index->numel; i++)
            to[i] = ah_tensor_get_int(index, i);
        at = to;
    }
    for (int64_t i = 0; i < index->numel; i++) {
        if (at[i] < 0 || at[i] >= rows) {
            int64_t wrong = at[i];
            ah_dense_close(held);
            return ah_fail(AH_EINVAL, "embedding: index %lld at position %lld is outside 0..%lld", (long long)wrong,
                           (long long)i, (long long)(rows - 1));
        }
    }
    *out = at;
    return 0;
}

int ah_cpu_embedding(struct ah_call *c)
{
    const struct ah_args_embedding *arg = ah_args(c, embedding);
    struct ah_tensor *index = arg->input.tensor, *w = arg->weight.tensor, *out = c->out[0];
    struct ah_dense held = {0};
    const int64_t *at = NULL;
    int64_t width = w->size[1];
    size_t item = ah_dtype_size(w->dtype);
    AH_TRY(ah_tensor_row_major(w));
    AH_TRY(indices_open(&held, &at, index, w->size[0]));
    const char *from = ah_tensor_data(w);
    char *to = ah_tensor_data(out);
    if (w->stride[1] == 1 || width <= 1) {
#pragma omp parallel for schedule(static) if (ah_worth_threads(out->numel, AH_SHARE_LIGHT))
        for (int64_t i = 0; i < index->numel; i++)
            memcpy(to + (size_t)(i * width) * item, from + (size_t)(at[i] * w->stride[0]) * item, (size_t)width * item);
    } else {
        for (int64_t i = 0; i < index->numel; i++)
            for (int64_t j = 0; j < width; j++)
                memcpy(to + (size_t)(i * width + j) * item,
                       from + (size_t)(at[i] * w->stride[0] + j * w->stride[1]) * item, item);
    }
    ah_dense_close(&held);
    return 0;
}

/* Threads own ranges of rows and all read all indices, so every row is summed in the order of its uses. */
#define SCATTER_ROWS(suffix, real)                                                                          \
    static void scatter_rows_##suffix(const int64_t *at, int64_t count, const real *g, int64_t width,       \
                                      int64_t padding, real *gw, int64_t rows)                              \
    {                                                                                                       \
        _Pragma("omp parallel num_threads(ah_worth_threads(count * width, AH_SHARE_LIGHT) ? ah_num_threads() : 1)") \
        {                                                                                                   \
            int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();                             \
            int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;                           \
            memset(gw + begin * width, 0, (size_t)((end - begin) * width) * sizeof *gw);                    \
            for (int64_t i = 0; i < count; i++) {                                                           \
                if (at[i] < begin || at[i] >= end || at[i] == padding)                                      \
                    continue;                                                                               \
                const real *restrict from = g + i * width;                                                  \
                real *restrict to = gw + at[i] * width;                                                     \
                for (int64_t j = 0; j < width; j++)                                                         \
                    to[j] += from[j];                                                                       \
            }                                                                                               \
        }                                                                                                   \
    }
SCATTER_ROWS(f32, float)
SCATTER_ROWS(f64, double)

int ah_cpu_embedding_backward(struct ah_call *c)
{
    const struct ah_args_embedding_backward *arg = ah_args(c, embedding_backward);
    struct ah_tensor *gt = arg->grad.tensor, *index = arg->input.tensor, *out = c->out[0];
    int64_t rows = out->size[0], width = out->size[1], padding = INT64_MIN;
    if (arg->padding_idx.kind != AH_NONE)
        padding = arg->padding_idx.integer + (arg->padding_idx.integer < 0 ? rows : 0);
    struct ah_dense held = {0}, g = {0};
    struct ah_dense_out gw = {0};
    const int64_t *at = NULL;
    int status;
    AH_TRYGO(indices_open(&held, &at, index, rows), out);
    AH_TRYGO(ah_dense_open(&g, gt), out);
    AH_TRYGO(ah_dense_out_open(&gw, out), out);
    if (ah_compute_dtype(gt->dtype) == AH_F32)
        scatter_rows_f32(at, index->numel, g.data, width, padding, gw.data, rows);
    else
        scatter_rows_f64(at, index->numel, g.data, width, padding, gw.data, rows);
out:
    ah_dense_out_close(&gw);
    ah_dense_close(&g);
    ah_dense_close(&held);
    return status;
}

/* Sums of bags. */

struct bags {
    const int64_t *at, *starts;
    const void *scale; /* in the table's compute dtype, or NULL */
    int64_t count, width, padding;
};

#define BAGS(suffix, real)                                                                                  \
    static void sum_bags_##suffix(const struct bags *bags, const real *w, real *out)                        \
    {                                                                                                       \
        const real *scale = bags->scale;                                                                    \
        int64_t width = bags->width, total = bags->starts[bags->count] - bags->starts[0];                   \
        _Pragma("omp parallel for schedule(static) if (ah_worth_threads(total * width, AH_SHARE_LIGHT))")   \
        for (int64_t b = 0; b < bags->count; b++) {                                                         \
            real *restrict to = out + b * width;                                                            \
            memset(to, 0, (size_t)width * sizeof *to);                                                      \
            for (int64_t i = bags->starts[b]; i < bags->starts[b + 1]; i++) {                               \
                const real *restrict from = w + bags->at[i] * width, factor = scale ? scale[i] : 1;         \
                for (int64_t j = 0; bags->at[i] != bags->padding && j < width; j++)                         \
                    to[j] += factor * from[j];                                                              \
            }                                                                                               \
        }                                                                                                   \
    }                                                                                                       \
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
BAGS(f32, float)
BAGS(f64, double)

/* Other inputs of bag_sum and its adjoint than the table or the gradient; bags are in order inside the input. */
struct held_bags {
    struct ah_dense index, scale;
    struct ah_tensor *starts;
};

static void bags_close(struct held_bags *held)
{
    ah_dense_close(&held->index);
    ah_dense_close(&held->scale);
    ah_tensor_release(held->starts);
}

static int bags_open(struct bags *bags, struct held_bags *held, struct ah_tensor *index, struct ah_tensor *starts,
                     struct ah_tensor *scale, const struct ah_value *padding, int64_t rows)
{
    *held = (struct held_bags){0};
    bags->padding = padding->kind == AH_NONE ? INT64_MIN : padding->integer + (padding->integer < 0 ? rows : 0);
    bags->count = starts->size[0] - 1;
    AH_TRY(indices_open(&held->index, &bags->at, index, rows));
    AH_TRY(ah_contiguous_as(&held->starts, starts, AH_I64));
    AH_TRY(ah_dense_open(&held->scale, scale));
    bags->starts = ah_tensor_data(held->starts);
    bags->scale = held->scale.data;
    for (int64_t b = 0; b <= bags->count; b++)
        if (bags->starts[b] < (b ? bags->starts[b - 1] : 0) || bags->starts[b] > index->numel)
            return ah_fail(AH_EINVAL, "embedding_bag: offset %lld of bag %lld is not in order within 0..%lld",
                           (long long)bags->starts[b], (long long)b, (long long)index->numel);
    return 0;
}

int ah_cpu_bag_sum(struct ah_call *c)
{
    const struct ah_args_bag_sum *arg = ah_args(c, bag_sum);
    struct ah_tensor *w = arg->weight.tensor, *out = c->out[0];
    struct bags bags = {.width = w->size[1]};
    struct held_bags held;
    struct ah_dense table = {0};
    struct ah_dense_out sums = {0};
    int status;
    AH_TRYGO(bags_open(&bags, &held, arg->input.tensor, arg->starts.tensor, ah_given(&arg->scale), &arg->padding_idx,
                       w->size[0]), out);
    AH_TRYGO(ah_dense_open(&table, w), out);
    AH_TRYGO(ah_dense_out_open(&sums, out), out);
    if (ah_compute_dtype(w->dtype) == AH_F32)
        sum_bags_f32(&bags, table.data, sums.data);
    else
        sum_bags_f64(&bags, table.data, sums.data);
out:
    ah_dense_out_close(&sums);
    ah_dense_close(&table);
    bags_close(&held);
    return status;
}

int ah_cpu_bag_sum_backward(struct ah_call *c)
{
    const struct ah_args_bag_sum_backward *arg = ah_args(c, bag_sum_backward);
    struct ah_tensor *gt = arg->grad.tensor, *out = c->out[0];
    struct bags bags = {.width = out->size[1]};
    struct held_bags held;
    struct ah_dense g = {0};
    struct ah_dense_out gw = {0};
    int status;
    AH_TRYGO(bags_open(&bags, &held, arg->input.tensor, arg->starts.tensor, ah_given(&arg->scale), &arg->padding_idx,
                       out->size[0]), out);
    AH_TRYGO(ah_dense_open(&g, gt), out);
    AH_TRYGO(ah_dense_out_open(&gw, out), out);
    if (ah_compute_dtype(gt->dtype) == AH_F32)
        spread_bags_f32(&bags, g.data, gw.data, out->size[0]);
    else
        spread_bags_f64(&bags, g.data, gw.data, out->size[0]);
out:
    ah_dense_out_close(&gw);
    ah_dense_close(&g);
    bags_close(&held);
    return status;
}
