/* Activations in the order N, H, W, C: marked storages as they are, others transposed into a block. Only float32 is
 * ever marked; halves are widened on the way in and rounded on the way out. */
#include "cpu/layout.h"

#include "tensor/transpose.h"

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
    return ah_dense_out_scratch(dense);
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
