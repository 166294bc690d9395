#include "cpu/layout.h"

#include "base/alloc.h"

enum { TILE = 16 };

static void transpose_tile(float *restrict to, const float *restrict from, int64_t rows, int64_t cols)
{
    float tile[TILE][TILE];
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            tile[i][j] = from[i * cols + j];
    for (int j = 0; j < TILE; j++)
        for (int i = 0; i < TILE; i++)
            to[j * rows + i] = tile[i][j];
}

static void transpose_one(float *restrict to, const float *restrict from, int64_t rows, int64_t cols)
{
    int64_t full_rows = rows / TILE * TILE, full_cols = cols / TILE * TILE;
    for (int64_t j = 0; j < full_cols; j += TILE)
        for (int64_t i = 0; i < full_rows; i += TILE)
            transpose_tile(to + j * rows + i, from + i * cols + j, rows, cols);
    for (int64_t j = full_cols; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            to[j * rows + i] = from[i * cols + j];
    for (int64_t j = 0; j < full_cols; j++)
        for (int64_t i = full_rows; i < rows; i++)
            to[j * rows + i] = from[i * cols + j];
}

void ah_transpose_f32(float *to, const float *from, int64_t count, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static) if (count * rows * cols > 32768)
    for (int64_t k = 0; k < count; k++)
        transpose_one(to + k * rows * cols, from + k * rows * cols, rows, cols);
}

struct extent {
    int64_t n, c, hw;
};

static struct extent extent_of(const struct ah_tensor *t)
{
    return (struct extent){t->ndim == 4 ? t->size[0] : 1, t->size[t->ndim - 3],
                           t->size[t->ndim - 2] * t->size[t->ndim - 1]};
}

int ah_nhwc_open(struct ah_dense *dense, struct ah_tensor *tensor)
{
    *dense = (struct ah_dense){0};
    if (tensor->storage->channels_last && tensor->dtype == AH_F32) {
        dense->data = ah_tensor_data(tensor);
        return 0;
    }
    struct extent e = extent_of(tensor);
    struct ah_dense plain;
    AH_TRY(ah_dense_open(&plain, tensor));
    if (e.c == 1 || e.hw == 1) {
        *dense = plain; /* both orders are the same */
        return 0;
    }
    int status = ah_dense_scratch(dense, (size_t)tensor->numel * sizeof(float));
    if (status == 0)
        ah_transpose_f32(dense->block, plain.data, e.n, e.c, e.hw);
    ah_dense_close(&plain);
    return status;
}

static bool is_own_order(const struct ah_tensor *out)
{
    struct extent e = extent_of(out);
    return out->dtype == AH_F32 && (out->ndim == 4 || e.c == 1 || e.hw == 1);
}

int ah_nhwc_out_open(struct ah_dense_out *dense, struct ah_tensor *out)
{
    *dense = (struct ah_dense_out){.out = out};
    if (is_own_order(out)) {
        dense->data = ah_tensor_data(out);
        return 0;
    }
    dense->bytes = (size_t)out->numel * sizeof(float);
    AH_TRY(ah_block_alloc(dense->bytes, &dense->block));
    dense->data = dense->block;
    return 0;
}

int ah_nhwc_out_close(struct ah_dense_out *dense, bool ok)
{
    struct ah_tensor *out = dense->out;
    int status = 0;
    if (!out)
        return 0;
    struct extent e = extent_of(out);
    if (ok && is_own_order(out)) {
        out->storage->channels_last = e.c > 1 && e.hw > 1;
    } else if (ok) {
        struct ah_dense_out plain;
        status = ah_dense_out_open(&plain, out);
        if (status == 0)
            ah_transpose_f32(plain.data, dense->data, e.n, e.hw, e.c);
        ah_dense_out_close(&plain);
    }
    ah_block_free(dense->block, dense->bytes);
    *dense = (struct ah_dense_out){0};
    return status;
}
