/* Losses of class labels and of probabilities. */
#include "cuda/kernels/optim_loss/loss.h"

#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/lib/rows.h"

static struct ah_cuda_kernel nll_kernel[] = AH_CUDA_REALS("loss", "nll");
static struct ah_cuda_kernel nll_backward_kernel[] = AH_CUDA_REALS("loss", "nll_backward");
static struct ah_cuda_kernel total_kernel[] = AH_CUDA_REALS("loss", "loss_total");
static struct ah_cuda_row_kernels entropy_kernel = AH_CUDA_ROWS("loss", "entropy");
static struct ah_cuda_row_kernels entropy_backward_kernel = AH_CUDA_ROWS("loss", "entropy_backward");

/* The labels and weights of scores of this shape; checked to be in range for op `op_name`, unless that is NULL. */
static void open_labels(struct ah_cuda_inputs *in, struct ah_labels *l, const char *op_name, struct ah_tensor *target,
                        struct ah_tensor *weight, const int64_t *size, int ndim, enum ah_dtype dtype)
{
    struct ah_tensor *label = ah_cuda_input(in, target, AH_I64);
    l->label = ah_cuda_data(label);
    l->weight = ah_cuda_data(ah_cuda_input(in, weight, ah_compute_dtype(dtype)));
    l->count = target->numel;
    l->classes = size[ndim == 1 ? 0 : 1];
    l->inner = 1;
    for (int d = 2; d < ndim; d++)
        l->inner *= size[d];
    struct ah_cuda_bounds bounds = {op_name, "target", 0, l->classes - 1, l->ignore, NULL, 0};
    if (in->status == 0 && op_name)
        in->status = ah_cuda_expect_within(in->device, &bounds, label);
}

static int add_up(struct ah_call *c, const struct ah_labels *labels, bool mean, void *loss)
{
    struct ah_loss_total_args args = {.labels = *labels, .loss = ah_cuda_address(loss), .out = ah_cuda_data(c->out[0]),
                                      .total = ah_cuda_data(c->extra[1]), .mean = mean};
    return ah_cuda_launch(c->device, &total_kernel[c->out[0]->dtype], c->op->name,
                          ah_cuda_grid_of(1, AH_LOSS_TOTAL_THREADS, 0), &args);
}

/* The sum or mean of `loss`, a block that is released. */
static int loss_finish(struct ah_call *c, struct ah_cuda_inputs *in, const struct ah_labels *labels,
                       const char *reduction, void *loss)
{
    if (loss && in->status == 0)
        in->status = add_up(c, labels, !strcmp(reduction, "mean"), loss);
    ah_cuda_memory_give(ah_cuda_state(c->device)->memory, loss);
    return ah_cuda_inputs_close(in);
}

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_LOSS_THREADS);
}

/* Open the labels, weights and scores of a loss. Return memory for the losses of the positions when they are added up,
 * else NULL. */
static void *open_loss(struct ah_call *c, struct ah_cuda_inputs *in, struct ah_labels *labels, const char *op_name,
                       uint64_t *scores)
{
    const struct ah_args_class_nll *arg = ah_args(c, class_nll); /* cross_entropy_rows has the same */
    struct ah_tensor *x = arg->input.tensor;
    void *loss = NULL;
    labels->ignore = arg->ignore_index.integer;
    labels->smoothing = arg->label_smoothing.number;
    open_labels(in, labels, op_name, arg->target.tensor, ah_given(&arg->weight), x->size, x->ndim, x->dtype);
    *scores = ah_cuda_data(ah_cuda_input(in, x, x->dtype));
    if (in->status == 0 && strcmp(arg->reduction.string, "none"))
        in->status = ah_cuda_memory_take(ah_cuda_state(c->device)->memory,
                                         (size_t)labels->count * ah_dtype_size(ah_compute_dtype(x->dtype)), &loss);
    return loss;
}

int ah_cuda_class_nll(struct ah_call *c)
{
    const struct ah_args_class_nll *arg = ah_args(c, class_nll);
    struct ah_cuda_inputs in = {.device = c->device};
    struct ah_nll_args args = {0};
    void *loss = open_loss(c, &in, &args.labels, "nll_loss", &args.x);
    args.loss = ah_cuda_address(loss);
    args.out = loss ? 0 : ah_cuda_data(c->out[0]);
    if (in.status == 0 && args.labels.count > 0)
        in.status = ah_cuda_launch(c->device, &nll_kernel[arg->input.tensor->dtype], c->op->name,
                                   grid_for(args.labels.count), &args);
    return loss_finish(c, &in, &args.labels, arg->reduction.string, loss);
}

int ah_cuda_class_nll_backward(struct ah_call *c)
{
    const struct ah_args_class_nll_backward *arg = ah_args(c, class_nll_backward);
    struct ah_tensor *out = c->out[0];
    const char *reduction = arg->reduction.string;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_nll_backward_args args = {
        .labels = {.ignore = arg->ignore_index.integer, .smoothing = arg->label_smoothing.number},
        .gx = ah_cuda_data(out), .each = !strcmp(reduction, "none"),
        .total = strcmp(reduction, "mean") ? 0 : ah_cuda_data(ah_given(&arg->total))};
    open_labels(&in, &args.labels, NULL, arg->target.tensor, ah_given(&arg->weight), out->size, out->ndim, out->dtype);
    args.g = ah_cuda_data(ah_cuda_input(&in, arg->grad.tensor, out->dtype));
    AH_TRY(in.status);
    if (out->numel > 0)
        AH_TRY(ah_cuda_launch(c->device, &nll_backward_kernel[out->dtype], c->op->name, grid_for(out->numel), &args));
    return 0;
}

int ah_cuda_cross_entropy_rows(struct ah_call *c)
{
    const struct ah_args_cross_entropy_rows *arg = ah_args(c, cross_entropy_rows);
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_cuda_inputs in = {.device = c->device};
    struct ah_entropy_args args = {.log_sum = ah_cuda_data(c->extra[0])};
    void *loss = open_loss(c, &in, &args.labels, "cross_entropy", &args.x);
    if (loss)
        args.loss = ah_cuda_address(loss);
    else if (c->out[0]->dtype == x->dtype)
        args.out = ah_cuda_data(c->out[0]);
    else
        args.loss = ah_cuda_data(c->out[0]);
    if (in.status == 0)
        in.status = ah_cuda_launch_rows(c->device, &entropy_kernel, c->op->name, x->dtype, args.labels.count,
                                        args.labels.classes, &args, sizeof args);
    return loss_finish(c, &in, &args.labels, arg->reduction.string, loss);
}

int ah_cuda_cross_entropy_rows_backward(struct ah_call *c)
{
    const struct ah_args_cross_entropy_rows_backward *arg = ah_args(c, cross_entropy_rows_backward);
    struct ah_tensor *x = arg->input.tensor;
    const char *reduction = arg->reduction.string;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_entropy_backward_args args = {
        .labels = {.ignore = arg->ignore_index.integer, .smoothing = arg->label_smoothing.number},
        .gx = ah_cuda_data(c->out[0]), .log_sum = ah_cuda_data(arg->log_sum.tensor), .each = !strcmp(reduction, "none"),
        .total = strcmp(reduction, "mean") ? 0 : ah_cuda_data(arg->total.tensor)};
    open_labels(&in, &args.labels, NULL, arg->target.tensor, ah_given(&arg->weight), x->size, x->ndim, x->dtype);
    args.g = ah_cuda_data(ah_cuda_input(&in, arg->grad.tensor, ah_compute_dtype(x->dtype)));
    args.x = ah_cuda_data(ah_cuda_input(&in, x, x->dtype));
    AH_TRY(in.status);
    return ah_cuda_launch_rows(c->device, &entropy_backward_kernel, c->op->name, x->dtype, args.labels.count,
                               args.labels.classes, &args, sizeof args);
}

/* An element each, by elementwise kernels. */

int ah_cuda_probability_nll(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("shares", "probability_nll")};
    const struct ah_args_probability_nll *arg = ah_args(c, probability_nll);
    enum ah_dtype dtype = c->out[0]->dtype;
    struct ah_cuda_inputs in = {.device = c->device};
    struct ah_tensor *p = ah_cuda_input(&in, arg->input.tensor, dtype);
    if (p)
        in.status = ah_cuda_expect_shares(c->device, "binary_cross_entropy", "input", p);
    struct ah_tensor *t = ah_cuda_input(&in, arg->target.tensor, dtype);
    if (t)
        in.status = ah_cuda_expect_shares(c->device, "binary_cross_entropy", "target", t);
    if (in.status == 0)
        in.status = ah_cuda_elementwise(c, loops, 2, dtype, dtype, NULL);
    return ah_cuda_inputs_close(&in);
}

int ah_cuda_logit_nll(struct ah_call *c)
{
    static ah_cuda_loops plain = {AH_CUDA_FLOATS("shares", "logit_nll")};
    static ah_cuda_loops weighted = {AH_CUDA_FLOATS("shares", "logit_nll_weighted")};
    bool with_weight = ah_given(&ah_args(c, logit_nll)->pos_weight);
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_cuda_elementwise(c, with_weight ? weighted : plain, with_weight ? 3 : 2, dtype, dtype, NULL);
}
