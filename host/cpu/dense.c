#include "cpu/dense.h"

#include "base/alloc.h"
#include "cpu/shape_copy.h"

enum ah_dtype ah_dense_dtype(enum ah_dtype dtype)
{
    return dtype == AH_F16 || dtype == AH_BF16 ? AH_F32 : dtype;
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

static void widen(float *to, const uint16_t *from, int64_t n, enum ah_dtype dtype)
{
    if (dtype == AH_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = ah_bf16_to_f32(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = ah_f16_to_f32(from[i]);
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
    if (!tensor || ah_dense_dtype(tensor->dtype) == tensor->dtype)
        return 0;
    struct ah_dense packed = *dense;
    *dense = (struct ah_dense){0};
    int status = ah_dense_scratch(dense, (size_t)tensor->numel * sizeof(float));
    if (status == 0)
        widen(dense->block, packed.data, tensor->numel, tensor->dtype);
    ah_dense_close(&packed);
    return status;
}

int ah_dense_out_open(struct ah_dense_out *dense, struct ah_tensor *out)
{
    *dense = (struct ah_dense_out){.out = out};
    if (ah_dense_dtype(out->dtype) == out->dtype) {
        dense->data = ah_tensor_data(out);
        return 0;
    }
    dense->bytes = (size_t)out->numel * sizeof(float);
    AH_TRY(ah_block_alloc(dense->bytes, &dense->block));
    dense->data = dense->block;
    return 0;
}

void ah_dense_out_close(struct ah_dense_out *dense)
{
    if (dense->block) {
        const float *from = dense->block;
        uint16_t *to = ah_tensor_data(dense->out);
        for (int64_t i = 0; i < dense->out->numel; i++)
            to[i] = dense->out->dtype == AH_BF16 ? ah_f32_to_bf16(from[i]) : ah_f32_to_f16(from[i]);
        ah_block_free(dense->block, dense->bytes);
    }
    dense->block = NULL;
    dense->data = NULL;
}
