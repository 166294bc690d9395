/* Sampling images and volumes on a grid. The input's gradient uses lists of entries, for as many samples at a time as a
 * list holds. */
#include "cuda/kernels/image/grid_sample.h"

#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/index/radix.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

enum { ENTRIES = 1 << 24 };

/* By mode and dims of space. */
enum kind { NEAREST2, NEAREST3, LINEAR2, LINEAR3, CUBIC2, KINDS };
#define EACH_KIND(name)                                                                                     \
    {AH_CUDA_REALS("grid_sample", name "_nearest2"), AH_CUDA_REALS("grid_sample", name "_nearest3"),        \
     AH_CUDA_REALS("grid_sample", name "_linear2"), AH_CUDA_REALS("grid_sample", name "_linear3"),          \
     AH_CUDA_REALS("grid_sample", name "_cubic2")}
static struct ah_cuda_kernel read_kernel[KINDS][AH_DTYPE_COUNT] = EACH_KIND("grid_read");
static struct ah_cuda_kernel slopes_kernel[KINDS][AH_DTYPE_COUNT] = EACH_KIND("grid_slopes");
static struct ah_cuda_kernel entries_kernel[KINDS][AH_DTYPE_COUNT] = EACH_KIND("grid_entries");
static struct ah_cuda_kernel add_kernel[] = AH_CUDA_REALS("grid_sample", "grid_add");

static enum kind kind_of(const struct ah_grid_args *args)
{
    if (args->mode == AH_GRID_NEAREST)
        return args->space == 2 ? NEAREST2 : NEAREST3;
    return args->mode == AH_GRID_BICUBIC ? CUBIC2 : args->space == 2 ? LINEAR2 : LINEAR3;
}

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_GRID_THREADS);
}

static int64_t groups_of(const struct ah_grid_args *args)
{
    return (args->c + AH_GRID_CHANNELS - 1) / AH_GRID_CHANNELS;
}

static int grid_sample_describe(struct ah_grid_args *args, const struct ah_call *c, const struct ah_tensor *x,
                                const struct ah_tensor *grid)
{
    const struct ah_value *mode = &c->arg[c->op->param_count - 3], *padding = mode + 1;
    *args = (struct ah_grid_args){.space = x->ndim - 2, .n = x->size[0], .c = x->size[1], .volume = 1, .pixels = 1,
                                  .align_corners = padding[1].flag};
    args->mode = !strcmp(mode->string, "nearest") ? AH_GRID_NEAREST
                 : !strcmp(mode->string, "bicubic") ? AH_GRID_BICUBIC : AH_GRID_BILINEAR;
    args->padding = !strcmp(padding->string, "border") ? AH_GRID_BORDER
                    : !strcmp(padding->string, "reflection") ? AH_GRID_REFLECTION : AH_GRID_ZEROS;
    for (int d = 0; d < args->space; d++) {
        args->size[d] = x->size[2 + d];
        args->volume *= args->size[d];
        args->pixels *= grid->size[1 + d];
    }
    if (args->volume > INT32_MAX)
        return ah_fail(AH_ENOTIMPL, "grid_sample: planes beyond 2147483647 elements are not supported");
    return 0;
}

int ah_cuda_grid_sample(struct ah_call *c)
{
    const struct ah_args_grid_sample *arg = ah_args(c, grid_sample);
    struct ah_tensor *out = c->out[0];
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_grid_args args;
    AH_TRY(grid_sample_describe(&args, c, arg->input.tensor, arg->grid.tensor));
    if (out->numel == 0)
        return 0;
    args.x = ah_cuda_data(ah_cuda_input(&in, arg->input.tensor, out->dtype));
    args.grid = ah_cuda_data(ah_cuda_input(&in, arg->grid.tensor, out->dtype));
    args.y = ah_cuda_data(out);
    AH_TRY(in.status);
    return ah_cuda_launch(c->device, &read_kernel[kind_of(&args)][out->dtype], "grid_sample",
                          grid_for(args.n * groups_of(&args) * args.pixels), &args);
}

/* The entries of args->samples samples: made, sorted by the element that they read, added up. */
static int add_samples(struct ah_call *c, struct ah_grid_args *args, int64_t corners)
{
    enum ah_dtype dtype = c->out[0]->dtype;
    int64_t entries = args->samples * args->pixels * corners, places = args->samples * args->volume;
    AH_CLEANUP(ah_cuda_sorted_release) struct ah_cuda_sorted sorted = {0};
    AH_CUDA_SCRATCH(keys, c->device);
    AH_CUDA_SCRATCH(weight, c->device);
    args->wide = places >= INT64_C(0xffffffff);
    AH_TRY(ah_cuda_scratch_take(&keys, (size_t)entries * (args->wide ? 8 : 4)));
    AH_TRY(ah_cuda_scratch_take(&weight, (size_t)entries * ah_dtype_size(ah_compute_dtype(dtype))));
    args->keys = ah_cuda_address(keys.at);
    args->weight = ah_cuda_address(weight.at);
    AH_TRY(ah_cuda_launch(c->device, &entries_kernel[kind_of(args)][dtype], "grid_sample",
                          grid_for(args->samples * args->pixels), args));
    AH_TRY(ah_cuda_sort_keys(c->device, "grid_sample", keys.at, NULL, entries, args->wide ? 8 : 4,
                             ah_cuda_bits(places + 1), &sorted));
    args->keys = ah_cuda_address(sorted.keys);
    args->order = ah_cuda_address(sorted.order);
    return ah_cuda_launch(c->device, &add_kernel[dtype], "grid_sample", grid_for(groups_of(args) * entries), args);
}

static int add_input(struct ah_call *c, struct ah_grid_args args)
{
    struct ah_tensor *gx = c->out[0];
    int64_t taps = args.mode == AH_GRID_NEAREST ? 1 : args.mode == AH_GRID_BICUBIC ? 4 : 2;
    int64_t corners = taps * taps * (args.space == 3 ? taps : 1), sample = args.pixels * corners;
    if (sample >= INT64_C(0xffffffff))
        return ah_fail(AH_ENOTIMPL, "grid_sample: gradients of a grid of %lld locations are not supported on %s",
                       (long long)args.pixels, c->device->name);
    AH_TRY(ah_cuda_fill(c->device, ah_tensor_data(gx), 0, ah_tensor_bytes(gx)));
    if (sample == 0 || args.c == 0)
        return 0;
    int64_t most = ENTRIES / sample > 1 ? ENTRIES / sample : 1;
    for (; args.first < args.n; args.first += args.samples) {
        args.samples = args.n - args.first < most ? args.n - args.first : most;
        AH_TRY(add_samples(c, &args, corners));
    }
    return 0;
}

int ah_cuda_grid_sample_backward(struct ah_call *c)
{
    const struct ah_args_grid_sample_backward *arg = ah_args(c, grid_sample_backward);
    struct ah_tensor *gx = c->out[0], *ggrid = c->out[1];
    enum ah_dtype dtype = gx->dtype;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_grid_args args;
    AH_TRY(grid_sample_describe(&args, c, arg->input.tensor, arg->grid.tensor));
    args.y = ah_cuda_data(ah_cuda_input(&in, arg->grad.tensor, dtype));
    args.x = ah_cuda_data(ah_cuda_input(&in, arg->input.tensor, dtype));
    args.grid = ah_cuda_data(ah_cuda_input(&in, arg->grid.tensor, dtype));
    args.gx = ah_cuda_data(gx);
    args.ggrid = ah_cuda_data(ggrid);
    AH_TRY(in.status);
    if (ggrid->numel > 0)
        AH_TRY(ah_cuda_launch(c->device, &slopes_kernel[kind_of(&args)][dtype], "grid_sample",
                              grid_for(args.n * args.pixels), &args));
    return add_input(c, args);
}
