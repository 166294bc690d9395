/* Padding with edges, and the places of a view's elements. */
#include "cuda/kernels/index/pad.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static struct ah_cuda_kernel pad_kernel[] = {
    AH_CUDA_KERNEL("pad", "edge_pad_1"), AH_CUDA_KERNEL("pad", "edge_pad_2"), AH_CUDA_KERNEL("pad", "edge_pad_4"),
    AH_CUDA_KERNEL("pad", "edge_pad_8")};
static struct ah_cuda_kernel backward_kernel[] = AH_CUDA_REALS("pad", "edge_pad_backward");
static struct ah_cuda_kernel positions_kernel = AH_CUDA_KERNEL("pad", "positions");

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_PAD_THREADS);
}

/* `size` is that of the input. */
static struct ah_pad_args args_of(const int64_t *size, int ndim, const struct ah_value *before,
                                  const struct ah_value *after, const char *mode)
{
    struct ah_pad_args args = {.mode = mode[0] == 'c' ? AH_PAD_CIRCULAR
                                       : !strcmp(mode, "reflect") ? AH_PAD_REFLECT : AH_PAD_REPLICATE};
    bool joins = false;
    for (int d = 0; d < ndim; d++) {
        int64_t first = before->ints.at[d], wide = size[d] + first + after->ints.at[d];
        bool plain = first == 0 && wide == size[d];
        if (plain && joins) {
            args.size[args.ndim - 1] *= size[d];
            args.padded[args.ndim - 1] *= size[d];
            continue;
        }
        args.size[args.ndim] = size[d];
        args.padded[args.ndim] = wide;
        args.before[args.ndim++] = first;
        joins = plain;
    }
    return args;
}

int ah_cuda_edge_pad(struct ah_call *c)
{
    const struct ah_args_edge_pad *arg = ah_args(c, edge_pad);
    struct ah_tensor *in = arg->input.tensor, *out = c->out[0];
    AH_OWNED struct ah_tensor *x = NULL;
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &x, in, in->dtype));
    struct ah_pad_args args = args_of(in->size, in->ndim, &arg->before, &arg->after, arg->mode.string);
    args.from = ah_cuda_data(x);
    args.to = ah_cuda_data(out);
    args.count = out->numel;
    return ah_cuda_launch(c->device, &pad_kernel[__builtin_ctz((unsigned)ah_dtype_size(in->dtype))], "pad",
                          grid_for(out->numel), &args);
}

int ah_cuda_edge_pad_backward(struct ah_call *c)
{
    const struct ah_args_edge_pad_backward *arg = ah_args(c, edge_pad_backward);
    struct ah_tensor *grad = arg->grad.tensor, *out = c->out[0];
    AH_OWNED struct ah_tensor *g = NULL;
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &g, grad, grad->dtype));
    struct ah_pad_args args = args_of(out->size, out->ndim, &arg->before, &arg->after, arg->mode.string);
    args.from = ah_cuda_data(g);
    args.to = ah_cuda_data(out);
    args.count = out->numel;
    return ah_cuda_launch(c->device, &backward_kernel[grad->dtype], "pad", grid_for(out->numel), &args);
}

int ah_cuda_as_strided_positions(struct ah_call *c)
{
    const struct ah_args_as_strided_positions *arg = ah_args(c, as_strided_positions);
    const int64_t *size = arg->input_size.ints.at, *geometry = arg->input_stride.ints.at;
    const struct ah_tensor *out = c->out[0];
    int ndim = arg->input_size.ints.count, order[AH_MAX_DIMS];
    struct ah_positions_args args = {.to = ah_cuda_data(out), .count = out->numel, .total = 1,
                                     .start = arg->storage_offset.integer - arg->input_offset.integer,
                                     .ndim = out->ndim, .in_ndim = ndim};
    int64_t place[AH_MAX_DIMS];
    if (out->numel == 0)
        return 0;
    for (int d = 0; d < out->ndim; d++) {
        args.size[d] = out->size[d];
        args.stride[d] = arg->stride.ints.at[d];
    }
    for (int d = ndim - 1; d >= 0; d--) {
        place[d] = args.total;
        args.total *= size[d];
    }
    for (int d = 0; d < ndim; d++) {
        int k = d;
        for (; k > 0 && geometry[order[k - 1]] < geometry[d]; k--)
            order[k] = order[k - 1];
        order[k] = d;
    }
    for (int k = 0; k < ndim; k++) {
        args.in_size[k] = size[order[k]];
        args.in_stride[k] = geometry[order[k]];
        args.in_place[k] = place[order[k]];
    }
    return ah_cuda_launch(c->device, &positions_kernel, c->op->name, grid_for(out->numel), &args);
}
