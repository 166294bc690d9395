/* Rows of a table by number. All numbers are checked before a row is read. The adjoint gives each thread a range of
 * rows and lets it read all numbers, so that every row sums its uses in order. */
#include <omp.h>
#include <string.h>

#include "base/threads.h"
#include "cpu/dense.h"
#include "cpu/kernels.h"

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
        _Pragma("omp parallel if (ah_worth_threads(count * width, AH_SHARE_LIGHT))")                         \
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
