/* Activations in the order N, H, W, C: marked storages as they are, others transposed into a block. Halves are widened
 * on the way in and rounded on the way out, or kept as they are. */
#include "cpu/loop/layout.h"

#include "base/memory/alloc.h"
#include "base/status/status.h"
#include "cpu/loop/iterate.h"
#include "tensor/tensor.h"
#include "tensor/transpose.h"

struct extent {
    int64_t n, c, hw;
};

static struct extent extent_of(const struct ah_tensor *t)
{
    return (struct extent){t->ndim == 4 ? t->size[0] : 1, t->size[t->ndim - 3],
                           t->size[t->ndim - 2] * t->size[t->ndim - 1]};
}

static void layout_transpose(void *to, const void *from, struct extent e, int64_t rows, int64_t cols, bool half)
{
    if (half)
        ah_transpose_16(to, from, e.n, rows, cols);
    else
        ah_transpose_f32(to, from, e.n, rows, cols);
}

/* Open a marked storage: as it is, or its halves widened in their order. */
static int layout_open_marked(struct ah_dense *dense, const struct ah_tensor *tensor, bool half)
{
    if (half || tensor->dtype == AH_F32) {
        dense->data = ah_tensor_data(tensor);
        return 0;
    }
    AH_TRY(ah_dense_scratch(dense, (size_t)tensor->numel * sizeof(float)));
    ah_cast(tensor->numel, dense->block, AH_F32, 1, ah_tensor_data(tensor), tensor->dtype, 1);
    return 0;
}

int ah_nhwc_open(struct ah_dense *dense, struct ah_tensor *tensor, bool half)
{
    *dense = (struct ah_dense){0};
    if (tensor->storage->channels_last)
        return layout_open_marked(dense, tensor, half);
    struct extent e = extent_of(tensor);
    struct ah_dense plain;
    AH_TRY(half ? ah_dense_open_as_is(&plain, tensor) : ah_dense_open(&plain, tensor));
    if (e.c == 1 || e.hw == 1) {
        *dense = plain; /* both orders are the same */
        return 0;
    }
    int status = ah_dense_scratch(dense, (size_t)tensor->numel * (half ? sizeof(uint16_t) : sizeof(float)));
    if (status == 0)
        layout_transpose(dense->block, plain.data, e, e.c, e.hw, half);
    ah_dense_close(&plain);
    return status;
}

/* Report whether the result keeps the order N, H, W, C in its own memory. */
static bool layout_is_kept(const struct ah_tensor *out)
{
    struct extent e = extent_of(out);
    return out->ndim == 4 || e.c == 1 || e.hw == 1;
}

const void *ah_array_nhwc(struct ah_arrays *a, struct ah_tensor *tensor, bool half)
{
    struct ah_dense *dense = &a->in[a->ins++];
    if (a->status == 0)
        a->status = ah_nhwc_open(dense, tensor, half);
    return dense->data;
}

int ah_nhwc_out_open(struct ah_dense_out *dense, struct ah_tensor *out, bool half)
{
    *dense = (struct ah_dense_out){.out = out};
    if (layout_is_kept(out) && (half || out->dtype == AH_F32)) {
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
    if (ok && layout_is_kept(out)) {
        if (dense->block)
            ah_cast(out->numel, ah_tensor_data(out), out->dtype, 1, dense->block, AH_F32, 1);
        out->storage->channels_last = e.c > 1 && e.hw > 1;
    } else if (ok && half) {
        layout_transpose(ah_tensor_data(out), dense->data, e, e.hw, e.c, true);
    } else if (ok) {
        struct ah_dense_out plain;
        status = ah_dense_out_open(&plain, out);
        if (status == 0)
            layout_transpose(plain.data, dense->data, e, e.hw, e.c, false);
        ah_dense_out_close(&plain);
    }
    ah_block_free(dense->block, dense->bytes);
    *dense = (struct ah_dense_out){0};
    return status;
}
