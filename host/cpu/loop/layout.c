/* Activations in the order N, H, W, C: marked storages as they are, others transposed into a block. Only float32 is
 * ever marked; halves are widened on the way in and rounded on the way out, or kept as they are. */
#include "cpu/loop/layout.h"

#include "tensor/transpose.h"

struct extent {
    int64_t n, c, hw;
};

static struct extent extent_of(const struct ah_tensor *t)
{
    return (struct extent){t->ndim == 4 ? t->size[0] : 1, t->size[t->ndim - 3],
                           t->size[t->ndim - 2] * t->size[t->ndim - 1]};
}

/* to[j, i] = from[i, j] for `count` matrices of 16-bit items, in tiles that stay in the first cache. */
static void transpose_half(uint16_t *to, const uint16_t *from, int64_t count, int64_t rows, int64_t cols)
{
    enum { TILE = 32 };
#pragma omp parallel for schedule(static) if (count * rows * cols > 32768)
    for (int64_t k = 0; k < count; k++) {
        uint16_t *out = to + k * rows * cols;
        const uint16_t *in = from + k * rows * cols;
        for (int64_t i0 = 0; i0 < rows; i0 += TILE)
            for (int64_t j0 = 0; j0 < cols; j0 += TILE)
                for (int64_t j = j0; j < cols && j < j0 + TILE; j++)
                    for (int64_t i = i0; i < rows && i < i0 + TILE; i++)
                        out[j * rows + i] = in[i * cols + j];
    }
}

int ah_nhwc_open(struct ah_dense *dense, struct ah_tensor *tensor, bool half)
{
    *dense = (struct ah_dense){0};
    if (tensor->storage->channels_last && tensor->dtype == AH_F32) {
        dense->data = ah_tensor_data(tensor);
        return 0;
    }
    struct extent e = extent_of(tensor);
    struct ah_dense plain;
    AH_TRY(half ? ah_dense_open_as_is(&plain, tensor) : ah_dense_open(&plain, tensor));
    if (e.c == 1 || e.hw == 1) {
        *dense = plain; /* both orders are the same */
        return 0;
    }
    int status = ah_dense_scratch(dense, (size_t)tensor->numel * (half ? sizeof(uint16_t) : sizeof(float)));
    if (status == 0 && half)
        transpose_half(dense->block, plain.data, e.n, e.c, e.hw);
    else if (status == 0)
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
    return ah_dense_out_scratch(dense);
}

int ah_nhwc_out_close(struct ah_dense_out *dense, bool ok, bool half)
{
    struct ah_tensor *out = dense->out;
    int status = 0;
    if (!out)
        return 0;
    struct extent e = extent_of(out);
    if (ok && is_own_order(out)) {
        out->storage->channels_last = e.c > 1 && e.hw > 1;
    } else if (ok && half) {
        transpose_half(ah_tensor_data(out), dense->data, e.n, e.hw, e.c);
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
