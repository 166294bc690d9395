/* Softmax, its logarithm, their adjoints, and softmax under a mask. */
#include "cuda/kernels/reduce/softmax.h"

#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/lib/rows.h"

static struct ah_cuda_row_kernels rows_kernel = AH_CUDA_ROWS("softmax", "softmax");
static struct ah_cuda_row_kernels backward_kernel = AH_CUDA_ROWS("softmax", "softmax_backward");
static struct ah_cuda_row_kernels masked_kernel = AH_CUDA_ROWS("softmax", "masked_softmax");
static struct ah_cuda_kernel columns_kernel[] = AH_CUDA_REALS("softmax", "softmax_columns");
static struct ah_cuda_kernel columns_backward_kernel[] = AH_CUDA_REALS("softmax", "softmax_columns_backward");

/* Elements of a dim, and between its neighbours. */
static void extent_at(const struct ah_tensor *t, int64_t dim, int64_t *length, int64_t *inner)
{
    *length = *inner = 1;
    if (t->ndim == 0)
        return;
    dim += dim < 0 ? t->ndim : 0;
    *length = t->size[dim];
    for (int64_t d = dim + 1; d < t->ndim; d++)
        *inner *= t->size[d];
}

static struct ah_cuda_grid columns_grid(int64_t columns)
{
    return ah_cuda_grid_for(columns, AH_ROW_THREADS);
}

static int softmax_run_forward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax *arg = ah_args(c, softmax);
    struct ah_tensor *out = c->out[0];
    struct ah_cuda_inputs in = {.device = c->device};
    if (out->numel == 0)
        return 0;
    struct ah_softmax_args args = {.x = ah_cuda_data(ah_cuda_input(&in, arg->input.tensor, out->dtype)),
                                   .y = ah_cuda_data(out), .log = log};
    extent_at(out, arg->dim.integer, &args.length, &args.inner);
    args.rows = out->numel / args.length;
    args.wide = ah_cuda_rows_wide(args.length, out->dtype, args.x, args.y, 0);
    if (in.status == 0 && args.inner > 1)
        in.status = ah_cuda_launch(c->device, &columns_kernel[out->dtype], c->op->name, columns_grid(args.rows), &args);
    else if (in.status == 0)
        in.status = ah_cuda_launch_rows(c->device, &rows_kernel, c->op->name, out->dtype, args.rows, args.length, &args,
                                        sizeof args);
    return ah_cuda_inputs_close(&in);
}

AH_CUDA_OP(softmax, softmax_run_forward(c, false))
AH_CUDA_OP(log_softmax, softmax_run_forward(c, true))

static int softmax_run_backward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax_backward *arg = ah_args(c, softmax_backward);
    struct ah_tensor *out = c->out[0];
    struct ah_cuda_inputs in = {.device = c->device};
    if (out->numel == 0)
        return 0;
    struct ah_softmax_backward_args args = {.g = ah_cuda_data(ah_cuda_input(&in, arg->grad.tensor, out->dtype)),
                                            .y = ah_cuda_data(ah_cuda_input(&in, arg->output.tensor, out->dtype)),
                                            .gx = ah_cuda_data(out), .log = log};
    extent_at(out, arg->dim.integer, &args.length, &args.inner);
    args.rows = out->numel / args.length;
    args.wide = ah_cuda_rows_wide(args.length, out->dtype, args.g, args.y, args.gx);
    if (in.status == 0 && args.inner > 1)
        in.status = ah_cuda_launch(c->device, &columns_backward_kernel[out->dtype], c->op->name,
                                   columns_grid(args.rows), &args);
    else if (in.status == 0)
        in.status = ah_cuda_launch_rows(c->device, &backward_kernel, c->op->name, out->dtype, args.rows, args.length,
                                        &args, sizeof args);
    return ah_cuda_inputs_close(&in);
}

AH_CUDA_OP(softmax_backward, softmax_run_backward(c, false))
AH_CUDA_OP(log_softmax_backward, softmax_run_backward(c, true))

int ah_cuda_masked_softmax(struct ah_call *c)
{
    const struct ah_args_masked_softmax *arg = ah_args(c, masked_softmax);
    struct ah_tensor *out = c->out[0], *given = ah_given(&arg->mask);
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    if (out->numel == 0)
        return 0;
    struct ah_masked_softmax_args args = {.x = ah_cuda_data(ah_cuda_input(&in, arg->input.tensor, out->dtype)),
                                          .y = ah_cuda_data(out), .causal = arg->causal.flag,
                                          .boolean = given && given->dtype == AH_BOOL};
    args.length = out->size[out->ndim - 1];
    args.queries = out->size[out->ndim - 2];
    args.rows = out->numel / args.length;
    args.wide = ah_cuda_rows_wide(args.length, out->dtype, args.x, args.y, 0);
    struct ah_tensor *mask = ah_cuda_input(&in, given, args.boolean ? AH_BOOL : out->dtype);
    if (mask) {
        args.mask = ah_cuda_data(mask);
        args.ndim = out->ndim;
        ah_broadcast_strides(mask, out->size, out->ndim, args.stride);
        for (int d = 0; d < out->ndim; d++)
            args.size[d] = out->size[d];
    }
    AH_TRY(in.status);
    return ah_cuda_launch_rows(c->device, &masked_kernel, c->op->name, out->dtype, args.rows, args.length,
                               &args, sizeof args);
}
