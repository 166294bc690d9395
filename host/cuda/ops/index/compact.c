/* Masks (kernels/index/compact.cu): the elements where they are true. If the size of a result is their number, the host
 * waits for this one number. */
#include "cuda/ops/index/compact.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/index/compact.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "tensor/overlap.h"

static struct ah_cuda_kernel count_kernel = AH_CUDA_KERNEL("compact", "compact_count");
static struct ah_cuda_kernel offsets_kernel = AH_CUDA_KERNEL("compact", "compact_offsets");
static struct ah_cuda_kernel places_kernel = AH_CUDA_KERNEL("compact", "compact_places");

#define BY_ITEM(name)                                                                        \
    {                                                                                        \
        AH_CUDA_KERNEL("compact", name "_1"), AH_CUDA_KERNEL("compact", name "_2"),          \
        AH_CUDA_KERNEL("compact", name "_4"), AH_CUDA_KERNEL("compact", name "_8")           \
    }
static struct ah_cuda_kernel take_kernel[] = BY_ITEM("compact_take"), place_kernel[] = BY_ITEM("compact_place");

static struct ah_compact_args args_of(const struct ah_cuda_nonzeros *places)
{
    return (struct ah_compact_args){.mask = ah_cuda_data(places->mask), .offsets = ah_cuda_data(places->offsets),
                                    .n = places->mask->numel, .tiles = places->offsets->numel - 1, .room = INT64_MAX};
}

static int compact_launch(struct ah_device *device, const char *op_name, struct ah_cuda_kernel *kernel,
                          const struct ah_compact_args *args)
{
    struct ah_cuda_grid grid = {ah_cuda_blocks(args->tiles, 1), AH_COMPACT_THREADS, 0};
    return args->tiles ? ah_cuda_launch(device, kernel, op_name, grid, args) : 0;
}

int ah_cuda_nonzeros_find(struct ah_device *device, const char *op_name, struct ah_tensor *mask,
                          struct ah_cuda_nonzeros *out)
{
    int64_t tiles = (mask->numel + AH_COMPACT_TILE - 1) / AH_COMPACT_TILE;
    *out = (struct ah_cuda_nonzeros){.mask = ah_tensor_retain(mask)};
    AH_TRY(ah_tensor_empty(&out->offsets, (int64_t[]){tiles + 1}, 1, AH_I64, device));
    struct ah_compact_args args = args_of(out);
    AH_TRY(compact_launch(device, op_name, &count_kernel, &args));
    struct ah_cuda_grid grid = {1, ah_cuda_threads(tiles / AH_COMPACT_SUM_EACH + 1, AH_COMPACT_SUM_THREADS), 0};
    return ah_cuda_launch(device, &offsets_kernel, op_name, grid, &args);
}

void ah_cuda_nonzeros_release(struct ah_cuda_nonzeros *places)
{
    ah_tensor_release(places->mask);
    ah_tensor_release(places->offsets);
    *places = (struct ah_cuda_nonzeros){0};
}

int ah_cuda_nonzeros_count(struct ah_device *device, const struct ah_cuda_nonzeros *places, int64_t *count)
{
    const int64_t *offsets = ah_tensor_data(places->offsets);
    return ah_cuda_copy(device, count, &ah_cpu, offsets + places->offsets->numel - 1, device, sizeof *count, NULL);
}

int ah_cuda_nonzeros_write(struct ah_device *device, const char *op_name, const struct ah_cuda_nonzeros *places,
                           struct ah_tensor *to, bool flat)
{
    struct ah_compact_args args = args_of(places);
    args.to = ah_cuda_data(to);
    args.ndim = flat ? 1 : places->mask->ndim;
    memcpy(args.size, places->mask->size, sizeof args.size);
    return args.ndim && to->numel ? compact_launch(device, op_name, &places_kernel, &args) : 0;
}

/* A tensor broadcast to a shape, row-major. */
static int compact_spread(struct ah_device *device, struct ah_tensor *tensor, const int64_t *size, int ndim,
                          enum ah_dtype dtype, struct ah_tensor **out)
{
    AH_OWNED struct ah_tensor *wide = NULL;
    int64_t stride[AH_MAX_DIMS];
    ah_broadcast_strides(tensor, size, ndim, stride);
    AH_TRY(ah_tensor_view(&wide, tensor, size, stride, ndim, tensor->offset));
    return ah_cuda_dense(device, out, wide, dtype);
}

/* The places of a mask broadcast to a shape. */
static int open_mask(struct ah_call *c, struct ah_tensor *mask, const int64_t *size, int ndim,
                     struct ah_cuda_nonzeros *out)
{
    AH_OWNED struct ah_tensor *wide = NULL;
    AH_TRY(compact_spread(c->device, mask, size, ndim, AH_BOOL, &wide));
    return ah_cuda_nonzeros_find(c->device, c->op->name, wide, out);
}

static int compact_move(struct ah_call *c, struct ah_cuda_kernel *kernels, const struct ah_cuda_nonzeros *places,
                        const struct ah_tensor *to, const struct ah_tensor *from, int64_t room)
{
    struct ah_compact_args args = args_of(places);
    args.to = ah_cuda_data(to);
    args.from = ah_cuda_data(from);
    args.room = room;
    return compact_launch(c->device, c->op->name, &kernels[__builtin_ctz((unsigned)ah_dtype_size(to->dtype))], &args);
}

int ah_cuda_masked_select(struct ah_call *c)
{
    const struct ah_args_masked_select *arg = ah_args(c, masked_select);
    struct ah_tensor *x = arg->input.tensor;
    AH_OWNED struct ah_tensor *source = NULL;
    AH_CLEANUP(ah_cuda_nonzeros_release) struct ah_cuda_nonzeros places = {0};
    int64_t size[AH_MAX_DIMS], count;
    int ndim;
    AH_TRY(ah_broadcast_shapes("masked_select", x, arg->mask.tensor, size, &ndim));
    AH_TRY(open_mask(c, arg->mask.tensor, size, ndim, &places));
    AH_TRY(compact_spread(c->device, x, size, ndim, x->dtype, &source));
    AH_TRY(ah_cuda_nonzeros_count(c->device, &places, &count));
    AH_TRY(ah_call_output(c, 0, &count, 1, x->dtype));
    if (count > 0)
        AH_TRY(compact_move(c, take_kernel, &places, c->out[0], source, count));
    return 0;
}

int ah_cuda_masked_select_backward(struct ah_call *c)
{
    const struct ah_args_masked_select_backward *arg = ah_args(c, masked_select_backward);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *grad = NULL;
    AH_CLEANUP(ah_cuda_nonzeros_release) struct ah_cuda_nonzeros places = {0};
    AH_TRY(open_mask(c, arg->mask.tensor, out->size, out->ndim, &places));
    AH_TRY(ah_cuda_dense(c->device, &grad, arg->grad.tensor, out->dtype));
    AH_TRY(ah_cuda_fill(c->device, ah_tensor_data(out), 0, ah_tensor_bytes(out)));
    return compact_move(c, place_kernel, &places, out, grad, grad->numel);
}

int ah_cuda_masked_scatter(struct ah_call *c)
{
    const struct ah_args_masked_scatter *arg = ah_args(c, masked_scatter);
    struct ah_tensor *out = c->out[0], *work = out;
    AH_OWNED struct ah_tensor *source = NULL, *made = NULL;
    AH_CLEANUP(ah_cuda_nonzeros_release) struct ah_cuda_nonzeros places = {0};
    AH_TRY(open_mask(c, arg->mask.tensor, out->size, out->ndim, &places));
    AH_TRY(ah_cuda_dense(c->device, &source, arg->source.tensor, out->dtype));
    AH_TRY(ah_cuda_expect_enough(c->device, c->op->name, places.offsets, source));
    if (!ah_tensor_is_contiguous(out) || ah_memory_meets(out, source)) {
        AH_TRY(ah_tensor_empty_like(&made, out));
        work = made;
    }
    AH_TRY(ah_cuda_assign(c->device, work, arg->input.tensor));
    AH_TRY(compact_move(c, place_kernel, &places, work, source, source->numel));
    return ah_cuda_assign(c->device, out, work);
}

int ah_cuda_nonzero(struct ah_call *c)
{
    struct ah_tensor *x = ah_args(c, nonzero)->input.tensor;
    AH_OWNED struct ah_tensor *mask = NULL;
    AH_CLEANUP(ah_cuda_nonzeros_release) struct ah_cuda_nonzeros places = {0};
    int64_t size[2] = {0, x->ndim};
    AH_TRY(ah_cuda_dense(c->device, &mask, x, AH_BOOL));
    AH_TRY(ah_cuda_nonzeros_find(c->device, "nonzero", mask, &places));
    AH_TRY(ah_cuda_nonzeros_count(c->device, &places, &size[0]));
    AH_TRY(ah_call_output(c, 0, size, 2, AH_I64));
    return ah_cuda_nonzeros_write(c->device, "nonzero", &places, c->out[0], false);
}
