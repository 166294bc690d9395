/* Filling new tensors (kernels/index/create.cu) by the CPU's formulas, bit by bit. */
#include "base/status/status.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/index/create.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static struct ah_cuda_kernel arange_kernel = AH_CUDA_KERNEL("create", "arange");
static struct ah_cuda_kernel linspace_kernel = AH_CUDA_KERNEL("create", "linspace");
static struct ah_cuda_kernel one_hot_kernel = AH_CUDA_KERNEL("create", "one_hot");
static struct ah_cuda_kernel triangle_kernel[] = {
    AH_CUDA_KERNEL("create", "triangle_1"), AH_CUDA_KERNEL("create", "triangle_2"),
    AH_CUDA_KERNEL("create", "triangle_4"), AH_CUDA_KERNEL("create", "triangle_8")};

static struct ah_cuda_grid grid_for(int64_t threads)
{
    return ah_cuda_grid_for(threads, AH_CREATE_THREADS);
}

static int create_sequence(struct ah_call *c, struct ah_cuda_kernel *kernel, struct ah_sequence_args *args)
{
    const struct ah_tensor *out = c->out[0];
    args->to = ah_cuda_data(out);
    args->n = out->numel;
    args->dtype = (int32_t)out->dtype;
    if (out->numel == 0)
        return 0;
    return ah_cuda_launch(c->device, kernel, c->op->name, grid_for(out->numel), args);
}

int ah_cuda_arange(struct ah_call *c)
{
    struct ah_sequence_args args = {.start = c->state.sequence.start, .step = c->state.sequence.step};
    return create_sequence(c, &arange_kernel, &args);
}

int ah_cuda_linspace(struct ah_call *c)
{
    const struct ah_args_linspace *arg = ah_args(c, linspace);
    int64_t n = c->out[0]->numel;
    struct ah_sequence_args args = {.start = arg->start.number, .end = arg->end_.number, .half = n == 1 ? 1 : n / 2};
    args.step = n > 1 ? (args.end - args.start) / (double)(n - 1) : 0;
    if (c->out[0]->dtype == AH_F32 && n > 1)
        args.step = ((float)args.end - (float)args.start) / (float)(n - 1);
    return create_sequence(c, &linspace_kernel, &args);
}

int ah_cuda_eye(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0], diagonal = *out;
    AH_OWNED struct ah_tensor *one = NULL;
    int64_t n = out->size[0] < out->size[1] ? out->size[0] : out->size[1];
    AH_TRY(ah_cuda_zero_(c));
    diagonal.ndim = 1;
    diagonal.size[0] = diagonal.numel = n;
    diagonal.stride[0] = out->stride[0] + out->stride[1];
    AH_TRY(ah_tensor_scalar(&one, 1, out->dtype, &ah_cpu));
    return ah_cuda_assign(c->device, &diagonal, one);
}

static int create_triangle(struct ah_call *c, bool upper)
{
    const struct ah_args_tril *arg = ah_args(c, tril);
    AH_OWNED struct ah_tensor *from = NULL, *made = NULL;
    struct ah_tensor *out = c->out[0];
    int64_t diagonal = arg->diagonal.integer;
    struct ah_triangle_args args = {.least = upper ? diagonal : INT64_MIN, .most = upper ? INT64_MAX : diagonal};
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &from, arg->input.tensor, out->dtype));
    if (!ah_tensor_is_contiguous(out))
        AH_TRY(ah_tensor_empty_like(&made, out));
    args.from = ah_cuda_data(from);
    args.to = ah_cuda_data(made ? made : out);
    args.rows = out->size[out->ndim - 2];
    args.columns = out->size[out->ndim - 1];
    args.lines = out->numel / args.columns;
    AH_TRY(ah_cuda_launch(c->device, &triangle_kernel[__builtin_ctz((unsigned)ah_dtype_size(out->dtype))],
                          c->op->name, grid_for(args.lines * 32), &args));
    return made ? ah_cuda_assign(c->device, out, made) : 0;
}

AH_CUDA_OP(tril, create_triangle(c, false))
AH_CUDA_OP(triu, create_triangle(c, true))

int ah_cuda_one_hot(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0], *x;
    int64_t classes = out->size[out->ndim - 1];
    AH_TRY(ah_cuda_dense(c->device, &x, ah_args(c, one_hot)->input.tensor, AH_I64));
    struct ah_cuda_bounds bounds = {.op_name = "one_hot", .what = "class", .high = classes - 1};
    struct ah_one_hot_args args = {ah_cuda_data(out), ah_cuda_data(x), x->numel,
                                   classes};
    if (classes == 0)
        bounds.other = INT64_MIN;
    int status = ah_cuda_expect_within(c->device, &bounds, x);
    if (status == 0 && out->numel > 0)
        status = ah_cuda_launch(c->device, &one_hot_kernel, "one_hot", grid_for((out->numel + 1) / 2), &args);
    ah_tensor_release(x);
    return status;
}
