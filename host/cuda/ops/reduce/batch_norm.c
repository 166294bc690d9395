/* Batch norm, in row-major and in channels-last order; the statistics stay on the device. */
#include "cuda/kernels/reduce/batch_norm.h"

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

enum { MOST_SPLITS = 256, ROWS_STEP = 512 };

static struct ah_cuda_kernel parts_kernel[] = AH_CUDA_REALS("batch_norm", "batch_parts");
static struct ah_cuda_kernel stats_kernel[] = AH_CUDA_REALS("batch_norm", "batch_stats");
static struct ah_cuda_kernel gradient_kernel[] = AH_CUDA_REALS("batch_norm", "batch_gradient");
static struct ah_cuda_kernel apply_kernel[] = AH_CUDA_REALS("batch_norm", "batch_apply");

/* Planes of one pixel are rows of channels. */
static struct ah_batch batch_of(const struct ah_tensor *t, bool last)
{
    struct ah_batch b = {.n = t->size[0], .c = t->size[1], .pixels = 1};
    for (int d = 2; d < t->ndim; d++)
        b.pixels *= t->size[d];
    b.last = last || b.pixels == 1;
    int64_t count = b.n * b.pixels, step = b.last ? ROWS_STEP : AH_BATCH_THREADS * AH_BATCH_EACH;
    int64_t steps = (count + step - 1) / step;
    b.length = (steps + MOST_SPLITS - 1) / MOST_SPLITS * step;
    b.splits = b.length ? (count + b.length - 1) / b.length : 0;
    return b;
}

/* Scratch memory of a pass: sums of the splits, then factors of the channels. */
struct scratch {
    void *block;
    uint64_t first, second, factor[3];
};

static int batch_norm_take(struct ah_call *c, const struct ah_batch *b, enum ah_dtype dtype, struct scratch *scratch)
{
    size_t item = ah_dtype_size(ah_compute_dtype(dtype)), parts = (size_t)(b->splits * b->c) * item;
    size_t factors = (size_t)b->c * item;
    AH_TRY(ah_cuda_memory_take(ah_cuda_state(c->device)->memory, 2 * parts + 3 * factors, &scratch->block));
    scratch->first = ah_cuda_address(scratch->block);
    scratch->second = scratch->first + parts;
    for (int i = 0; i < 3; i++)
        scratch->factor[i] = scratch->second + parts + (size_t)i * factors;
    return 0;
}

static void batch_norm_give(struct ah_call *c, struct scratch *scratch)
{
    ah_cuda_memory_give(ah_cuda_state(c->device)->memory, scratch->block);
}

static int launch_parts(struct ah_call *c, const struct ah_batch_parts_args *args, enum ah_dtype dtype)
{
    const struct ah_batch *b = &args->batch;
    int64_t groups = b->last ? (b->c + AH_BATCH_COLUMNS - 1) / AH_BATCH_COLUMNS : b->c;
    if (b->splits * groups == 0)
        return 0;
    return ah_cuda_launch(c->device, &parts_kernel[dtype], c->op->name,
                          ah_cuda_grid_each(b->splits * groups, AH_BATCH_THREADS), args);
}

static struct ah_cuda_grid channels_grid(const struct ah_batch *b)
{
    return ah_cuda_grid_for(b->c, AH_BATCH_THREADS);
}

static int launch_apply(struct ah_call *c, struct ah_batch_apply_args *args, enum ah_dtype dtype)
{
    const struct ah_batch *b = &args->batch;
    int64_t pack = (int64_t)(16 / ah_dtype_size(dtype)), packs = (b->n * b->c * b->pixels + pack - 1) / pack;
    if (packs == 0)
        return 0;
    args->wide = (b->last ? b->c : b->pixels) % pack == 0 && (args->x | args->g | args->y) % 16 == 0;
    return ah_cuda_launch(c->device, &apply_kernel[dtype], c->op->name, ah_cuda_grid_for(packs, AH_BATCH_THREADS),
                          args);
}

/* Set the running statistics, which counts as a write. */
static void set_running(struct ah_call *c, struct ah_batch_stats_args *args)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *mean = ah_given(&arg->running_mean), *var = ah_given(&arg->running_var);
    args->running_mean = ah_cuda_data(mean);
    args->running_var = ah_cuda_data(var);
    args->mean_stride = mean ? mean->stride[0] : 0;
    args->var_stride = var ? var->stride[0] : 0;
    if (mean && arg->training.flag)
        ah_tensor_touch(mean);
    if (var && arg->training.flag)
        ah_tensor_touch(var);
}

/* The statistics and the factors made of them. */
static int find_stats(struct ah_call *c, const struct ah_batch *b, const struct scratch *scratch,
                      const struct ah_tensor *x, const struct ah_tensor *weight, const struct ah_tensor *bias)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    bool training = arg->training.flag;
    struct ah_batch_parts_args parts = {.batch = *b, .x = ah_cuda_data(x), .first = scratch->first,
                                        .second = scratch->second};
    if (training)
        AH_TRY(launch_parts(c, &parts, x->dtype));
    struct ah_batch_stats_args stats = {.batch = *b, .first = training ? scratch->first : 0,
                                        .second = scratch->second, .mean = ah_cuda_data(c->extra[0]),
                                        .inverse = ah_cuda_data(c->extra[1]), .weight = ah_cuda_data(weight),
                                        .bias = ah_cuda_data(bias), .scale = scratch->factor[0],
                                        .shift = scratch->factor[1], .eps = arg->eps.number,
                                        .momentum = arg->momentum.number};
    set_running(c, &stats);
    return ah_cuda_launch(c->device, &stats_kernel[x->dtype], c->op->name, channels_grid(b), &stats);
}

/* A vector of the channels; NULL of NULL. */
static struct ah_tensor *open_vector(struct ah_cuda_inputs *in, struct ah_tensor *t)
{
    return t ? ah_cuda_input(in, t, t->dtype) : NULL;
}

int ah_cuda_batch_norm(struct ah_call *c)
{
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0];
    struct ah_cuda_inputs in = {.device = c->device};
    bool last = xt->storage->channels_last;
    struct ah_batch b = batch_of(xt, last);
    struct scratch scratch = {NULL};
    if (out->numel == 0)
        return 0;
    struct ah_tensor *x = ah_cuda_input_last(&in, xt, last), *weight = open_vector(&in, ah_given(&arg->weight));
    struct ah_tensor *bias = open_vector(&in, ah_given(&arg->bias));
    if (in.status == 0)
        in.status = batch_norm_take(c, &b, xt->dtype, &scratch);
    if (in.status == 0)
        in.status = find_stats(c, &b, &scratch, x, weight, bias);
    struct ah_batch_apply_args apply = {.batch = b, .x = ah_cuda_data(x), .y = ah_cuda_data(out),
                                        .scale = scratch.factor[0], .shift = scratch.factor[1]};
    if (in.status == 0) {
        in.status = launch_apply(c, &apply, xt->dtype);
        out->storage->channels_last = last;
    }
    batch_norm_give(c, &scratch);
    return ah_cuda_inputs_close(&in);
}

int ah_cuda_batch_norm_backward(struct ah_call *c)
{
    const struct ah_args_batch_norm_backward *arg = ah_args(c, batch_norm_backward);
    struct ah_tensor *gt = arg->grad.tensor, *xt = arg->input.tensor;
    struct ah_cuda_inputs in = {.device = c->device};
    bool last = xt->storage->channels_last && gt->storage->channels_last && xt->dtype == gt->dtype;
    enum ah_dtype dtype = xt->dtype;
    struct ah_batch b = batch_of(xt, last);
    struct scratch scratch = {NULL};
    if (b.c == 0)
        return 0;
    struct ah_tensor *g = ah_cuda_input_last(&in, gt, last), *x = ah_cuda_input_last(&in, xt, last);
    struct ah_tensor *weight = open_vector(&in, ah_given(&arg->weight));
    if (in.status == 0)
        in.status = batch_norm_take(c, &b, dtype, &scratch);
    struct ah_batch_parts_args parts = {.batch = b, .x = ah_cuda_data(x), .g = ah_cuda_data(g),
                                        .mean = ah_cuda_data(arg->mean.tensor), .first = scratch.first,
                                        .second = scratch.second};
    if (in.status == 0)
        in.status = launch_parts(c, &parts, dtype);
    struct ah_batch_gradient_args gradient = {
        .batch = b, .first = scratch.first, .second = scratch.second, .mean = parts.mean,
        .inverse = ah_cuda_data(arg->inverse.tensor), .weight = ah_cuda_data(weight),
        .grad_weight = ah_cuda_data(c->out[1]), .grad_bias = ah_cuda_data(c->out[2]), .of_g = scratch.factor[0],
        .of_x = scratch.factor[1], .constant = scratch.factor[2], .training = arg->training.flag};
    if (in.status == 0)
        in.status = ah_cuda_launch(c->device, &gradient_kernel[dtype], c->op->name, channels_grid(&b), &gradient);
    struct ah_batch_apply_args apply = {.batch = b, .x = parts.x, .g = parts.g, .y = ah_cuda_data(c->out[0]),
                                        .scale = scratch.factor[1], .shift = scratch.factor[2],
                                        .of_g = scratch.factor[0]};
    if (in.status == 0) {
        in.status = launch_apply(c, &apply, dtype);
        c->out[0]->storage->channels_last = last;
    }
    batch_norm_give(c, &scratch);
    return ah_cuda_inputs_close(&in);
}
