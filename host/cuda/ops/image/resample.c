/* Resizing images and volumes. Forward all axes at once; the adjoint one axis after another, the last first, through
 * tensors of the type that is computed with. */
#include "cuda/kernels/image/resample.h"

#include <math.h>
#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static struct ah_cuda_kernel taps_kernel[] = AH_CUDA_REALS("resample", "resample_taps");
static struct ah_cuda_kernel readers_kernel = AH_CUDA_KERNEL("resample", "resample_readers");
static struct ah_cuda_kernel pick_kernel[] = {
    AH_CUDA_KERNEL("resample", "resample_pick_1"), AH_CUDA_KERNEL("resample", "resample_pick_2"),
    AH_CUDA_KERNEL("resample", "resample_pick_4"), AH_CUDA_KERNEL("resample", "resample_pick_8")};
static struct ah_cuda_kernel forward_kernel[] = AH_CUDA_REALS("resample", "resample");
static struct ah_cuda_kernel adjoint_kernel[] = AH_CUDA_REALS("resample", "resample_adjoint");

static const int reach_of_filter[] = {[AH_NEAREST] = 0, [AH_NEAREST_EXACT] = 0, [AH_LINEAR] = 1, [AH_CUBIC] = 2,
                                      [AH_LANCZOS] = 3};

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_RESAMPLE_THREADS);
}

static enum ah_resample_filter filter_of(const char *mode)
{
    return !strcmp(mode, "nearest") ? AH_NEAREST : !strcmp(mode, "nearest-exact") ? AH_NEAREST_EXACT
           : !strcmp(mode, "bicubic") ? AH_CUBIC : !strcmp(mode, "lanczos") ? AH_LANCZOS : AH_LINEAR;
}

/* Describe the resizing, with the number of taps of the widest position of each axis. */
static struct ah_taps_args resample_describe(const struct ah_call *c, const struct ah_tensor *in,
                                             const struct ah_tensor *out)
{
    const struct ah_args_resample *arg = ah_args(c, resample);
    struct ah_taps_args t = {.filter = filter_of(arg->mode.string), .align_corners = arg->align_corners.flag,
                             .antialias = arg->antialias.flag};
    const double scale[3] = {arg->scale0.number, arg->scale1.number, arg->scale2.number};
    int space = in->ndim - 2, missing = 3 - space;
    t.reach = reach_of_filter[t.filter];
    for (int i = 0; i < 3; i++) {
        struct ah_axis *a = &t.axis[i];
        *a = (struct ah_axis){.in = 1, .out = 1, .taps = 1, .same = 1};
        if (i < missing)
            continue;
        a->in = in->size[2 + i - missing];
        a->out = out->size[2 + i - missing];
        a->scale = scale[i - missing];
        a->whole = t.filter == AH_NEAREST && space == 2;
        a->same = a->in == a->out && (a->in == 1 || t.antialias);
        double step = a->scale > 0 ? 1 / a->scale : (double)a->in / (double)a->out;
        if (t.align_corners)
            step = a->out > 1 ? (double)(a->in - 1) / (double)(a->out - 1) : 0;
        a->taps = t.filter == AH_CUBIC ? 4 : t.filter == AH_LINEAR ? 2 : 1;
        if (t.antialias) {
            double taps = ceil(t.reach * (step > 1 ? step : 1)) * 2 + 1;
            a->taps = taps > (double)a->in ? (int32_t)a->in : (int32_t)taps;
        }
    }
    return t;
}

/* Make the tables in one block, which the caller frees; the readers' only for an adjoint. */
static int make_tables(struct ah_call *c, struct ah_taps_args *t, enum ah_dtype dtype, bool adjoint,
                       struct ah_cuda_scratch *block)
{
    size_t item = ah_dtype_size(dtype), bytes = 0;
    int64_t most = 0, most_in = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t at = pass ? ah_cuda_address(block->at) : 0;
        for (int i = 0; i < 3; i++) {
            t->axis[i].weight = at;
            at += (uint64_t)(t->axis[i].taps * t->axis[i].out) * item;
        }
        for (int i = 0; i < 3; i++) {
            struct ah_axis *a = &t->axis[i];
            uint64_t *part[] = {&a->count, &a->at, &a->first, &a->end};
            const int64_t count[] = {a->out, a->taps * a->out, adjoint ? a->in : 0, adjoint ? a->in : 0};
            for (int k = 0; k < 4; k++) {
                *part[k] = at;
                at += (uint64_t)count[k] * sizeof(int32_t);
            }
            most = a->out > most ? a->out : most;
            most_in = a->in > most_in ? a->in : most_in;
        }
        bytes = (size_t)at;
        if (!pass)
            AH_TRY(ah_cuda_scratch_take(block, bytes));
    }
    AH_TRY(ah_cuda_launch(c->device, &taps_kernel[dtype], "interpolate", grid_for(most), t));
    return adjoint ? ah_cuda_launch(c->device, &readers_kernel, "interpolate", grid_for(most_in), t) : 0;
}

int ah_cuda_resample(struct ah_call *c)
{
    struct ah_tensor *in = c->arg[0].tensor, *out = c->out[0];
    AH_OWNED struct ah_tensor *x = NULL;
    struct ah_taps_args t = resample_describe(c, in, out);
    bool nearest = t.filter == AH_NEAREST || t.filter == AH_NEAREST_EXACT;
    enum ah_dtype computed = in->dtype == AH_F64 ? AH_F64 : AH_F32;
    AH_CUDA_SCRATCH(block, c->device);
    if (out->numel == 0)
        return 0;
    AH_TRY(make_tables(c, &t, computed, false, &block));
    AH_TRY(ah_cuda_dense(c->device, &x, in, in->dtype));
    struct ah_resample_args args = {.in = ah_cuda_data(x), .planes = in->size[0] * in->size[1],
                                    .out = ah_cuda_data(out),
                                    .narrow = in->numel < 1 << 30 && out->numel < 1 << 30};
    memcpy(args.axis, t.axis, sizeof args.axis);
    struct ah_cuda_kernel *kernel = nearest ? &pick_kernel[__builtin_ctz((unsigned)ah_dtype_size(in->dtype))]
                                            : &forward_kernel[in->dtype];
    return ah_cuda_launch(c->device, kernel, "interpolate", grid_for(out->numel), &args);
}

/* One axis of the adjoint, from *at to a tensor that replaces it: `into`, unless that is NULL. */
static int adjoint_axis(struct ah_call *c, const struct ah_taps_args *t, int axis, int64_t planes,
                        struct ah_tensor *into, struct ah_tensor **at)
{
    struct ah_resample_adjoint_args args = {.axis = t->axis[axis], .outer = planes, .inner = 1};
    struct ah_tensor *to;
    for (int i = 0; i < 3; i++)
        *(i < axis ? &args.outer : &args.inner) *= i < axis ? t->axis[i].out : i > axis ? t->axis[i].in : 1;
    const int64_t size[3] = {args.outer, args.axis.in, args.inner};
    if (into)
        to = ah_tensor_retain(into);
    else
        AH_TRY(ah_tensor_empty(&to, size, 3, (*at)->dtype, c->device));
    args.from = ah_cuda_data(*at);
    args.to = ah_cuda_data(to);
    args.narrow = to->numel < 1 << 30 && (*at)->numel < 1 << 30;
    int status = ah_cuda_launch(c->device, &adjoint_kernel[to->dtype], "interpolate", grid_for(to->numel), &args);
    ah_tensor_release(*at);
    *at = to;
    return status;
}

int ah_cuda_resample_adjoint(struct ah_call *c)
{
    struct ah_tensor *grad = c->arg[0].tensor, *in = c->out[0];
    AH_OWNED struct ah_tensor *at = NULL;
    struct ah_taps_args t = resample_describe(c, in, grad);
    enum ah_dtype computed = ah_compute_dtype(grad->dtype);
    int64_t planes = in->size[0] * in->size[1];
    AH_CUDA_SCRATCH(block, c->device);
    if (in->numel == 0)
        return 0;
    AH_TRY(make_tables(c, &t, computed, true, &block));
    AH_TRY(ah_cuda_dense(c->device, &at, grad, computed));
    for (int i = 2; i >= 0; i--) {
        bool last = true;
        for (int k = 0; k < i; k++)
            last = last && t.axis[k].same;
        struct ah_tensor *into = last && in->dtype == computed ? in : NULL;
        if (!t.axis[i].same)
            AH_TRY(adjoint_axis(c, &t, i, planes, into, &at));
    }
    struct ah_tensor result = *in;
    result.storage = at->storage;
    result.offset = at->offset;
    result.dtype = at->dtype;
    return ah_cuda_assign(c->device, in, &result);
}
