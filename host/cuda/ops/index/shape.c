/* Ops that move elements to other places: each is one or more copies between windows of tensors. */
#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/host_kernel.h"
#include "cuda/ops/lib/ops.h"

/* Copy x to the window of `out` that begins `start` elements further and has these strides. */
static int shape_place(struct ah_call *c, int64_t start, const int64_t *stride, struct ah_tensor *x)
{
    struct ah_tensor window = *x;
    window.storage = c->out[0]->storage;
    window.dtype = c->out[0]->dtype;
    window.offset = c->out[0]->offset + start;
    memcpy(window.stride, stride, (size_t)x->ndim * sizeof stride[0]);
    return ah_cuda_assign(c->device, &window, x);
}

static int shape_clear(struct ah_call *c)
{
    const struct ah_tensor *out = c->out[0];
    return ah_cuda_fill(c->device, ah_tensor_data(out), 0, ah_tensor_bytes(out));
}

/* The strides of `out` without those of `dim`. */
static void shape_without(const struct ah_tensor *out, int dim, int64_t *stride)
{
    for (int d = 0, k = 0; d < out->ndim; d++)
        if (d != dim)
            stride[k++] = out->stride[d];
}

int ah_cuda_cat(struct ah_call *c)
{
    const struct ah_args_cat *arg = ah_args(c, cat);
    const struct ah_tensor *out = c->out[0];
    int dim = c->state.join.dim;
    int64_t at = 0;
    for (int i = 0; i < arg->tensors.list.count; i++) {
        struct ah_tensor *x = arg->tensors.list.item[i];
        if (x->numel == 0)
            continue;
        AH_TRY(shape_place(c, at * out->stride[dim], out->stride, x));
        at += x->size[dim];
    }
    return 0;
}

int ah_cuda_stack(struct ah_call *c)
{
    const struct ah_args_stack *arg = ah_args(c, stack);
    const struct ah_tensor *out = c->out[0];
    int64_t stride[AH_MAX_DIMS] = {0};
    shape_without(out, c->state.join.dim, stride);
    for (int i = 0; i < arg->tensors.list.count; i++)
        AH_TRY(shape_place(c, i * out->stride[c->state.join.dim], stride, arg->tensors.list.item[i]));
    return 0;
}

int ah_cuda_reshape_copy(struct ah_call *c)
{
    struct ah_tensor *x = ah_args(c, reshape_copy)->input.tensor;
    int64_t stride[AH_MAX_DIMS];
    ah_contiguous_strides(x->size, x->ndim, stride);
    return shape_place(c, 0, stride, x);
}

int ah_cuda_flip(struct ah_call *c)
{
    const struct ah_args_flip *arg = ah_args(c, flip);
    struct ah_tensor back = *arg->input.tensor;
    for (int k = 0; k < arg->dims.ints.count && back.numel > 0; k++) {
        int dim = 0;
        AH_TRY(ah_wrap_dim("flip", arg->dims.ints.at[k], back.ndim, &dim));
        if (back.ndim == 0)
            continue;
        back.offset += (back.size[dim] - 1) * back.stride[dim];
        back.stride[dim] = -back.stride[dim];
    }
    return ah_cuda_assign(c->device, c->out[0], &back);
}

int ah_cuda_repeat(struct ah_call *c)
{
    /* Each dim twice: the copies, which do not move the source, and the dim itself. */
    const struct ah_args_repeat *arg = ah_args(c, repeat);
    struct ah_tensor from = *arg->input.tensor, to = *c->out[0];
    int lead = c->out[0]->ndim - arg->input.tensor->ndim, n = 0;
    for (int d = 0; d < c->out[0]->ndim; d++) {
        int64_t own = d < lead ? 1 : arg->input.tensor->size[d - lead], copies = arg->repeats.ints.at[d];
        if (n + (copies != 1) + (own != 1) > AH_MAX_DIMS)
            return ah_cuda_on_host(c);
        if (copies != 1) {
            from.size[n] = to.size[n] = copies;
            from.stride[n] = 0;
            to.stride[n++] = own * c->out[0]->stride[d];
        }
        if (own != 1) {
            from.size[n] = to.size[n] = own;
            from.stride[n] = arg->input.tensor->stride[d - lead];
            to.stride[n++] = c->out[0]->stride[d];
        }
    }
    from.ndim = to.ndim = n;
    from.numel = to.numel;
    return ah_cuda_assign(c->device, &to, &from);
}

int ah_cuda_slice_backward(struct ah_call *c)
{
    const struct ah_args_slice_backward *arg = ah_args(c, slice_backward);
    int dim = (int)arg->dim.integer;
    int64_t stride[AH_MAX_DIMS];
    memcpy(stride, c->out[0]->stride, sizeof stride);
    stride[dim] *= arg->step.integer;
    AH_TRY(shape_clear(c));
    return shape_place(c, arg->start.integer * c->out[0]->stride[dim], stride, arg->grad.tensor);
}

int ah_cuda_diagonal_backward(struct ah_call *c)
{
    const struct ah_args_diagonal_backward *arg = ah_args(c, diagonal_backward);
    const struct ah_tensor *out = c->out[0];
    int64_t offset = arg->offset.integer, stride[AH_MAX_DIMS] = {0};
    int a = (int)arg->dim1.integer, b = (int)arg->dim2.integer, k = 0;
    for (int d = 0; d < out->ndim; d++)
        if (d != a && d != b)
            stride[k++] = out->stride[d];
    stride[k] = out->stride[a] + out->stride[b];
    AH_TRY(shape_clear(c));
    return shape_place(c, offset >= 0 ? offset * out->stride[b] : -offset * out->stride[a], stride, arg->grad.tensor);
}

int ah_cuda_constant_pad(struct ah_call *c)
{
    const struct ah_args_constant_pad *arg = ah_args(c, constant_pad);
    struct ah_tensor inner = *arg->input.tensor, *number;
    const struct ah_tensor *out = c->out[0];
    int64_t to = 0;
    inner.numel = 1;
    for (int d = 0; d < inner.ndim; d++) {
        int64_t before = arg->before.ints.at[d], after = arg->after.ints.at[d];
        int64_t left = inner.size[d] + (before < 0 ? before : 0) + (after < 0 ? after : 0);
        to += (before > 0 ? before : 0) * out->stride[d];
        inner.offset += (before < 0 ? -before : 0) * inner.stride[d];
        inner.size[d] = left < 0 ? 0 : left;
        inner.numel *= inner.size[d];
    }
    if (inner.numel < out->numel) {
        AH_TRY(ah_tensor_scalar(&number, arg->value.number, out->dtype, &ah_cpu));
        int status = ah_cuda_assign(c->device, c->out[0], number);
        ah_tensor_release(number);
        AH_TRY(status);
    }
    return inner.numel > 0 ? shape_place(c, to, out->stride, &inner) : 0;
}
