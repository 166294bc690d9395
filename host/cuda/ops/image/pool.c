/* Pooling. Maxima keep the order of channels that their input has; means are row-major. */
#include "cuda/kernels/image/pool.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "ops/nn/pool.h"

static struct ah_cuda_kernel max_kernel[] = AH_CUDA_REALS("pool", "max_pool");
static struct ah_cuda_kernel max_backward_kernel[] = AH_CUDA_REALS("pool", "max_pool_backward");
static struct ah_cuda_kernel mean_kernel[] = AH_CUDA_REALS("pool", "mean_pool");
static struct ah_cuda_kernel mean_backward_kernel[] = AH_CUDA_REALS("pool", "mean_pool_backward");
static struct ah_cuda_kernel adaptive_max_kernel[] = AH_CUDA_REALS("pool", "adaptive_max");
static struct ah_cuda_kernel positions_kernel = AH_CUDA_KERNEL("pool", "max_pool_positions");

/* Indices within 30 bits leave room for a grid's step behind the last one. */
static void set_narrow(struct ah_pool *p)
{
    const int64_t planes = p->n * p->c, most = 1 << 30;
    int64_t large = 0;
    for (int i = 0; i < 2; i++)
        large |= p->kernel[i] * p->dilation[i] | p->stride[i] | p->padding[i];
    p->narrow = planes * p->h * p->w < most && planes * p->oh * p->ow < most && large < 1 << 20 &&
                p->h < 1 << 20 && p->w < 1 << 20;
}

static struct ah_pool pool_of(const struct ah_window *s)
{
    struct ah_pool p = {.n = s->n, .c = s->c, .h = s->h, .w = s->w, .oh = s->oh, .ow = s->ow};
    memcpy(p.kernel, s->kernel, sizeof p.kernel);
    memcpy(p.stride, s->stride, sizeof p.stride);
    memcpy(p.padding, s->padding, sizeof p.padding);
    memcpy(p.dilation, s->dilation, sizeof p.dilation);
    p.warps = s->kernel[0] >= AH_POOL_LARGE || s->kernel[1] >= AH_POOL_LARGE ||
              s->kernel[0] * s->kernel[1] >= AH_POOL_LARGE;
    set_narrow(&p);
    return p;
}

static struct ah_pool adaptive_of(const int64_t *in, const int64_t *out, int ndim)
{
    struct ah_pool p = {.n = ndim == 4 ? in[0] : 1, .c = in[ndim - 3], .h = in[ndim - 2], .w = in[ndim - 1],
                        .oh = out[ndim - 2], .ow = out[ndim - 1], .adaptive = 1};
    p.warps = p.oh > 0 && p.ow > 0 && p.h / p.oh * (p.w / p.ow) >= AH_POOL_LARGE;
    set_narrow(&p);
    return p;
}

/* Threads for `items` results, each of one thread or, with `warps`, of a warp. */
static int pool_launch(struct ah_call *c, struct ah_cuda_kernel *kernel, int64_t items, bool warps, const void *args,
                       size_t size)
{
    if (items == 0)
        return 0;
    return ah_cuda_launch_sized(c->device, kernel, c->op->name,
                                ah_cuda_grid_for(warps ? 32 * items : items, AH_POOL_THREADS), args, size);
}

static int max_geometry(struct ah_window *s, const struct ah_call *c, const int64_t *size, int ndim, int at)
{
    return ah_window_geometry(s, c->op->name, size, ndim, &c->arg[at], &c->arg[at + 1], &c->arg[at + 2],
                              &c->arg[at + 3], c->arg[at + 4].flag);
}

int ah_cuda_max_pool2d(struct ah_call *c)
{
    const struct ah_args_max_pool2d *arg = ah_args(c, max_pool2d);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0], *place = c->extra[0];
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_window s;
    AH_TRY(max_geometry(&s, c, xt->size, xt->ndim, 1));
    struct ah_max_pool_args args = {.pool = pool_of(&s), .y = ah_cuda_data(out), .place = ah_cuda_data(place),
                                    .bytes = ah_window_fits_byte(&s)};
    args.pool.last = xt->storage->channels_last && !arg->return_indices.flag;
    if (arg->return_indices.flag)
        args.index = ah_cuda_data(c->out[1]);
    args.x = ah_cuda_data(ah_cuda_input_last(&in, xt, args.pool.last));
    AH_TRY(in.status);
    AH_TRY(pool_launch(c, &max_kernel[xt->dtype], out->numel, false, &args, sizeof args));
    out->storage->channels_last = args.pool.last;
    if (place)
        place->storage->channels_last = args.pool.last;
    return 0;
}

int ah_cuda_max_pool2d_positions(struct ah_call *c)
{
    const struct ah_args_max_pool2d_positions *arg = ah_args(c, max_pool2d_positions);
    AH_OWNED struct ah_tensor *place = NULL;
    struct ah_window s;
    AH_TRY(max_geometry(&s, c, arg->input_size.ints.at, arg->input_size.ints.count, 2));
    AH_TRY(ah_cuda_dense(c->device, &place, arg->place.tensor, arg->place.tensor->dtype));
    struct ah_max_pool_args args = {.pool = pool_of(&s), .place = ah_cuda_data(place), .index = ah_cuda_data(c->out[0]),
                                    .bytes = place->dtype == AH_U8};
    return pool_launch(c, &positions_kernel, c->out[0]->numel, false, &args, sizeof args);
}

int ah_cuda_max_pool2d_backward(struct ah_call *c)
{
    const struct ah_args_max_pool2d_backward *arg = ah_args(c, max_pool2d_backward);
    struct ah_tensor *gt = arg->grad.tensor, *place = arg->place.tensor, *out = c->out[0];
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_window s;
    AH_TRY(max_geometry(&s, c, arg->input_size.ints.at, arg->input_size.ints.count, 3));
    struct ah_max_pool_backward_args args = {.pool = pool_of(&s), .gx = ah_cuda_data(out),
                                             .bytes = place->dtype == AH_U8};
    args.pool.last = place->storage->channels_last && gt->storage->channels_last;
    if (!args.pool.last)
        AH_TRY(ah_tensor_row_major(place));
    args.g = ah_cuda_data(ah_cuda_input_last(&in, gt, args.pool.last));
    args.place = ah_cuda_data(place);
    AH_TRY(in.status);
    AH_TRY(pool_launch(c, &max_backward_kernel[gt->dtype], out->numel, false, &args, sizeof args));
    out->storage->channels_last = args.pool.last;
    return 0;
}

/* Means. */

static int pool_mean(struct ah_call *c, struct ah_mean_pool_args *args, bool backward)
{
    struct ah_tensor *in = c->arg[0].tensor;
    struct ah_cuda_inputs inputs = {.device = c->device};
    args->x = ah_cuda_data(ah_cuda_input(&inputs, in, in->dtype));
    args->y = ah_cuda_data(c->out[0]);
    struct ah_cuda_kernel *kernel = backward ? mean_backward_kernel : mean_kernel;
    bool warps = args->pool.warps && !backward;
    if (inputs.status == 0)
        inputs.status = pool_launch(c, &kernel[in->dtype], c->out[0]->numel, warps, args, sizeof *args);
    return ah_cuda_inputs_close(&inputs);
}

static int window_mean(struct ah_call *c, const int64_t *size, int ndim, int at, bool backward)
{
    struct ah_window s;
    AH_TRY(ah_window_geometry(&s, c->op->name, size, ndim, &c->arg[at], &c->arg[at + 1], &c->arg[at + 2], NULL,
                              c->arg[at + 3].flag));
    const struct ah_value *divisor = &c->arg[at + 5];
    struct ah_mean_pool_args args = {.pool = pool_of(&s), .count_padding = c->arg[at + 4].flag,
                                     .divisor = divisor->kind == AH_NONE ? 0 : divisor->integer};
    return pool_mean(c, &args, backward);
}

AH_CUDA_OP_WITH(avg_pool2d, avg_pool2d, window_mean(c, arg->input.tensor->size, arg->input.tensor->ndim, 1, false))
AH_CUDA_OP_WITH(avg_pool2d_backward, avg_pool2d_backward,
                window_mean(c, arg->input_size.ints.at, arg->input_size.ints.count, 2, true))

int ah_cuda_adaptive_avg_pool2d(struct ah_call *c)
{
    const struct ah_tensor *in = ah_args(c, adaptive_avg_pool2d)->input.tensor, *out = c->out[0];
    return pool_mean(c, &(struct ah_mean_pool_args){.pool = adaptive_of(in->size, out->size, out->ndim)}, false);
}

int ah_cuda_adaptive_avg_pool2d_backward(struct ah_call *c)
{
    const struct ah_tensor *grad = ah_args(c, adaptive_avg_pool2d_backward)->grad.tensor, *out = c->out[0];
    return pool_mean(c, &(struct ah_mean_pool_args){.pool = adaptive_of(out->size, grad->size, out->ndim)}, true);
}

int ah_cuda_adaptive_max_pool2d(struct ah_call *c)
{
    const struct ah_args_adaptive_max_pool2d *arg = ah_args(c, adaptive_max_pool2d);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0], *place = c->extra[0], *x = NULL;
    AH_TRY(ah_cuda_dense(c->device, &x, xt, xt->dtype));
    struct ah_adaptive_max_args args = {.pool = adaptive_of(xt->size, out->size, out->ndim), .x = ah_cuda_data(x),
                                        .y = ah_cuda_data(out), .place = ah_cuda_data(place)};
    int status = pool_launch(c, &adaptive_max_kernel[xt->dtype], out->numel, args.pool.warps, &args, sizeof args);
    if (status == 0 && arg->return_indices.flag)
        status = ah_cuda_assign(c->device, c->out[1], place);
    ah_tensor_release(x);
    return status;
}
