/* Tensors as plain arrays for kernels that want row-major float or double: used in place when they already are that,
 * else copied into a block of the cache and, for fp16 and bf16, converted. Closing frees the blocks on every path. */
#include "cpu/loop/dense.h"

#include "base/memory/alloc.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/shape_copy.h"
#include "tensor/tensor.h"

/* A conversion of adjacent items that threads share. */
struct dense_cast {
    char *out;
    const char *in;
    enum ah_dtype to, from;
};

static void dense_cast_range(void *context, int64_t begin, int64_t end)
{
    const struct dense_cast *c = context;
    ah_cast(end - begin, c->out + (size_t)begin * ah_dtype_size(c->to), c->to, 1,
            c->in + (size_t)begin * ah_dtype_size(c->from), c->from, 1);
}

static void dense_cast(int64_t n, void *out, enum ah_dtype to, const void *in, enum ah_dtype from)
{
    struct dense_cast c = {out, in, to, from};
    ah_parallel_units(n, 1, AH_SHARE_LIGHT, dense_cast_range, &c);
}

int ah_dense_scratch(struct ah_dense *dense, size_t bytes)
{
    AH_TRY(ah_block_alloc(bytes, &dense->block));
    dense->bytes = bytes;
    dense->data = dense->block;
    return 0;
}

void ah_dense_close(struct ah_dense *dense)
{
    ah_block_free(dense->block, dense->bytes);
    dense->block = NULL;
    dense->data = NULL;
}

int ah_dense_open_as_is(struct ah_dense *dense, struct ah_tensor *tensor)
{
    *dense = (struct ah_dense){0};
    if (!tensor)
        return 0;
    AH_TRY(ah_tensor_row_major(tensor));
    if (ah_tensor_is_contiguous(tensor)) {
        dense->data = ah_tensor_data(tensor);
        return 0;
    }
    int64_t stride[AH_MAX_DIMS];
    size_t item = ah_dtype_size(tensor->dtype);
    ah_contiguous_strides(tensor->size, tensor->ndim, stride);
    AH_TRY(ah_dense_scratch(dense, (size_t)tensor->numel * item));
    ah_strided_copy(dense->block, stride, ah_tensor_data(tensor), tensor->stride, tensor->size, tensor->ndim, item);
    return 0;
}

int ah_dense_open(struct ah_dense *dense, struct ah_tensor *tensor)
{
    AH_TRY(ah_dense_open_as_is(dense, tensor));
    if (!tensor || ah_compute_dtype(tensor->dtype) == tensor->dtype)
        return 0;
    AH_CLEANUP(ah_dense_close) struct ah_dense packed = *dense;
    *dense = (struct ah_dense){0};
    AH_TRY(ah_dense_scratch(dense, (size_t)tensor->numel * sizeof(float)));
    dense_cast(tensor->numel, dense->block, AH_F32, packed.data, tensor->dtype);
    return 0;
}

int ah_dense_out_scratch(struct ah_dense_out *dense)
{
    dense->bytes = (size_t)dense->out->numel * sizeof(float);
    AH_TRY(ah_block_alloc(dense->bytes, &dense->block));
    dense->data = dense->block;
    return 0;
}

int ah_dense_out_open(struct ah_dense_out *dense, struct ah_tensor *out)
{
    *dense = (struct ah_dense_out){.out = out};
    if (ah_compute_dtype(out->dtype) == out->dtype) {
        dense->data = ah_tensor_data(out);
        return 0;
    }
    return ah_dense_out_scratch(dense);
}

void ah_dense_out_close(struct ah_dense_out *dense)
{
    if (dense->block) {
        dense_cast(dense->out->numel, ah_tensor_data(dense->out), dense->out->dtype, dense->block, AH_F32);
        ah_block_free(dense->block, dense->bytes);
    }
    dense->block = NULL;
    dense->data = NULL;
}

const void *ah_array_in(struct ah_arrays *a, struct ah_tensor *tensor)
{
    struct ah_dense *dense = &a->in[a->ins++];
    if (a->status == 0)
        a->status = ah_dense_open(dense, tensor);
    return dense->data;
}

const void *ah_array_as_is(struct ah_arrays *a, struct ah_tensor *tensor)
{
    struct ah_dense *dense = &a->in[a->ins++];
    if (a->status == 0)
        a->status = ah_dense_open_as_is(dense, tensor);
    return dense->data;
}

struct ah_items ah_items_in(struct ah_arrays *a, struct ah_tensor *tensor)
{
    return (struct ah_items){(void *)(uintptr_t)ah_array_as_is(a, tensor), tensor ? tensor->dtype : AH_F32};
}

struct ah_items ah_items_out(struct ah_tensor *out)
{
    return (struct ah_items){out ? ah_tensor_data(out) : NULL, out ? out->dtype : AH_F32};
}

void *ah_array_scratch(struct ah_arrays *a, size_t bytes)
{
    struct ah_dense *dense = &a->in[a->ins++];
    if (a->status == 0)
        a->status = ah_dense_scratch(dense, bytes);
    return dense->block;
}

const int64_t *ah_array_ints(struct ah_arrays *a, struct ah_tensor *tensor)
{
    const void *from = ah_array_as_is(a, tensor);
    if (tensor->dtype == AH_I64)
        return from;
    int64_t *to = ah_array_scratch(a, (size_t)tensor->numel * sizeof *to);
    if (to)
        dense_cast(tensor->numel, to, AH_I64, from, tensor->dtype);
    return to;
}

void *ah_array_out(struct ah_arrays *a, struct ah_tensor *out)
{
    struct ah_dense_out *dense = &a->out[a->outs++];
    if (a->status == 0)
        a->status = ah_dense_out_open(dense, out);
    return dense->data;
}

int ah_arrays_close(struct ah_arrays *a)
{
    while (a->outs > 0)
        ah_dense_out_close(&a->out[--a->outs]);
    while (a->ins > 0)
        ah_dense_close(&a->in[--a->ins]);
    return a->status;
}
