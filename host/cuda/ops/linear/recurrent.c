/* Recurrent layers: of each step a product of the hidden state by cuBLASLt and one kernel of all gates
 * (kernels/linear/recurrent.cu); back through the steps alike, then one product over all of them for the weight. The
 * host knows the steps' sizes and waits for nothing. Products of fp16 or bf16 are float32, and a hidden state is
 * rounded to that dtype for the next step's product; the cell stays in float32. */
#include "cuda/kernels/linear/recurrent.h"

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/vendor/matmul.h"
#include "ops/dispatch/precision.h"
#include "ops/nn/recurrent.h"

_Static_assert((int)AH_CELL_LSTM == AH_LSTM && (int)AH_CELL_GRU == AH_GRU && (int)AH_CELL_TANH == AH_RNN_TANH &&
               (int)AH_CELL_RELU == AH_RNN_RELU, "kernels count the kinds as ops do");

/* Steps of sizes that differ use products of a multiple of ROWS rows, since each size needs a separate plan. */
enum { ROWS = 32 };

static struct ah_cuda_kernel cell_kernel[] = AH_CUDA_REALS("recurrent", "recurrent_cell");
static struct ah_cuda_kernel adjoint_kernel[] = AH_CUDA_REALS("recurrent", "recurrent_adjoint");

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_RECURRENT_THREADS);
}

/* As a row-major tensor of this dtype; NULL of NULL. */
static int recurrent_dense(struct ah_call *c, struct ah_tensor **out, struct ah_tensor *t, enum ah_dtype dtype)
{
    *out = NULL;
    return t ? ah_cuda_dense(c->device, out, t, dtype) : 0;
}

/* A running state: `out` itself where it has this dtype. It begins with `first`, or zeros. */
static int recurrent_begin(struct ah_call *c, struct ah_tensor **state, struct ah_tensor *out, struct ah_tensor *first,
                           enum ah_dtype dtype)
{
    if (out->dtype == dtype)
        *state = ah_tensor_retain(out);
    else
        AH_TRY(ah_tensor_empty(state, out->size, out->ndim, dtype, c->device));
    if (first)
        return ah_cuda_assign(c->device, *state, first);
    return ah_cuda_fill(c->device, ah_tensor_data(*state), 0, (size_t)out->numel * ah_dtype_size(dtype));
}

/* The data that the steps share. */
struct layer {
    struct ah_recurrent_plan plan;
    enum ah_dtype dtype, real; /* of the tensors; of the computation */
    struct ah_tensor *weight;
    int64_t wide;
};

/* out [rows, columns] = a [rows, depth] times the weight, or its transpose. */
static int by_weight(struct ah_call *c, const struct layer *l, uint64_t a, uint64_t out, int64_t rows, bool transposed)
{
    int64_t columns = transposed ? l->wide : l->plan.width, depth = transposed ? l->plan.width : l->wide;
    return ah_cuda_multiply(c->device, c->op->name,
                            &(struct ah_cuda_matmul){.dtype = l->dtype,
                                                     .rows = rows,
                                                     .columns = columns,
                                                     .depth = depth,
                                                     .batch = 1,
                                                     .a = {a, false, depth, 0},
                                                     .b = {ah_cuda_data(l->weight), transposed, l->plan.width, 0},
                                                     .out = {out, false, columns, 0},
                                                     .wide = true,
                                                     .tf32 = ah_precision()->matmul != AH_MATMUL_HIGHEST});
}

static int open_layer(struct ah_call *c, struct layer *l, const struct ah_tensor *gates, struct ah_tensor *hidden,
                      struct ah_tensor *weight, const struct ah_tensor *sizes, const char *kind, bool reverse)
{
    l->dtype = hidden->dtype;
    l->real = ah_compute_dtype(hidden->dtype);
    AH_TRY(ah_recurrent_plan_open(&l->plan, gates, hidden, sizes, kind, reverse));
    l->wide = l->plan.gates * l->plan.width;
    return ah_cuda_dense(c->device, &l->weight, weight, weight->dtype);
}

static void close_layer(struct layer *l)
{
    ah_tensor_release(l->weight);
    ah_recurrent_plan_close(&l->plan);
}

/* Run all steps; `args` has their common fields. */
static int run_layer(struct ah_call *c, const struct layer *l, struct ah_recurrent_cell_args *args)
{
    const struct ah_recurrent_plan *plan = &l->plan;
    for (int64_t n = 0; n < plan->steps; n++) {
        int64_t step = ah_recurrent_step(plan, n);
        args->row = plan->row[step];
        args->count = plan->count[step];
        int64_t rows = at_most((args->count + ROWS - 1) / ROWS * ROWS, plan->sequences);
        AH_TRY(by_weight(c, l, args->hidden, args->hidden_gates, rows, true));
        AH_TRY(ah_cuda_launch(c->device, &cell_kernel[l->dtype], c->op->name, grid_for(args->count * args->width),
                              args));
    }
    return 0;
}

int ah_cuda_recurrent(struct ah_call *c)
{
    const struct ah_args_recurrent *arg = ah_args(c, recurrent);
    struct ah_cuda_memory *memory = ah_cuda_state(c->device)->memory;
    struct ah_tensor *gates = NULL, *bias = NULL, *hidden = NULL, *cell = NULL, *ht = arg->hidden.tensor;
    struct layer l = {.weight = NULL};
    void *hidden_gates = NULL;
    int status;
    AH_TRYGO(open_layer(c, &l, arg->gates.tensor, ht, arg->weight.tensor, ah_given(&arg->batch_sizes),
                        arg->kind.string, arg->reverse.flag), out);
    if (ht->numel == 0)
        goto out;
    AH_TRYGO(recurrent_dense(c, &gates, arg->gates.tensor, l.dtype), out);
    AH_TRYGO(recurrent_dense(c, &bias, ah_given(&arg->bias), l.dtype), out);
    AH_TRYGO(recurrent_begin(c, &hidden, c->out[1], ht, l.dtype), out);
    if (c->out[2])
        AH_TRYGO(recurrent_begin(c, &cell, c->out[2], ah_given(&arg->cell), l.real), out);
    AH_TRYGO(ah_cuda_memory_take(memory, (size_t)(l.plan.sequences * l.wide) * ah_dtype_size(l.real), &hidden_gates),
             out);
    struct ah_recurrent_cell_args args = {
        .gates = ah_cuda_data(gates), .bias = ah_cuda_data(bias), .hidden_gates = ah_cuda_address(hidden_gates),
        .hidden = ah_cuda_data(hidden), .cell = ah_cuda_data(cell), .output = ah_cuda_data(c->out[0]),
        .active = ah_cuda_data(c->extra[0]), .inner = ah_cuda_data(c->extra[1]), .width = l.plan.width,
        .kind = l.plan.kind};
    AH_TRYGO(run_layer(c, &l, &args), out);
    if (cell)
        status = ah_cuda_assign(c->device, c->out[2], cell);
out:
    ah_cuda_memory_give(memory, hidden_gates);
    ah_tensor_release(cell);
    ah_tensor_release(hidden);
    ah_tensor_release(bias);
    ah_tensor_release(gates);
    close_layer(&l);
    return status;
}

/* The backward. */

/* Back through all steps: first the one that the layer computed last. The product of a step is added by the kernel of
 * the next one, since a product of more rows than the step has may not write into the running gradient. A last launch
 * of no rows adds that of the first step. */
static int run_adjoint(struct ah_call *c, const struct layer *l, struct ah_recurrent_adjoint_args *args)
{
    const struct ah_recurrent_plan *plan = &l->plan;
    size_t line = (size_t)l->wide * ah_dtype_size(l->dtype);
    for (int64_t n = plan->steps - 1; n >= 0; n--) {
        int64_t step = ah_recurrent_step(plan, n), before = n > 0 ? ah_recurrent_step(plan, n - 1) : -1;
        args->row = plan->row[step];
        args->count = plan->count[step];
        args->earlier = before < 0 ? 0 : plan->row[before];
        args->earlier_count = before < 0 ? 0 : plan->count[before];
        int64_t most = args->count > args->arrived ? args->count : args->arrived;
        AH_TRY(ah_cuda_launch(c->device, &adjoint_kernel[l->dtype], c->op->name, grid_for(most * args->width), args));
        int64_t rows = at_most((args->count + ROWS - 1) / ROWS * ROWS, plan->sequences);
        AH_TRY(by_weight(c, l, args->grad_hidden_gates + (uint64_t)args->row * line, args->grad_later,
                         at_most(rows, plan->rows - args->row), false));
        args->arrived = args->count;
    }
    args->count = args->row = args->earlier_count = 0;
    return args->arrived == 0 ? 0 : ah_cuda_launch(c->device, &adjoint_kernel[l->dtype], c->op->name,
                                                   grid_for(args->arrived * args->width), args);
}

/* out [wide, width + 1]: the gradient of the weight, and in the last column of the bias. */
static int weight_adjoint(struct ah_call *c, const struct layer *l, const struct ah_tensor *grad_hidden_gates,
                          const struct ah_tensor *before, struct ah_tensor *out)
{
    int64_t width = l->plan.width;
    AH_OWNED struct ah_tensor *product = NULL, *sums = NULL, *left = NULL, *last = NULL;
    if (l->plan.rows == 0)
        return ah_cuda_fill(c->device, ah_tensor_data(out), 0, ah_tensor_bytes(out));
    AH_TRY(ah_tensor_empty(&product, (int64_t[]){l->wide, width}, 2, l->dtype, c->device));
    AH_TRY(ah_tensor_view(&left, out, product->size, out->stride, 2, out->offset));
    AH_TRY(ah_tensor_view(&last, out, out->size, out->stride, 1, out->offset + width));
    AH_TRY(ah_cuda_multiply(c->device, c->op->name,
                            &(struct ah_cuda_matmul){.dtype = l->dtype,
                                                     .rows = l->wide,
                                                     .columns = width,
                                                     .depth = l->plan.rows,
                                                     .batch = 1,
                                                     .a = {ah_cuda_data(grad_hidden_gates), true, l->wide, 0},
                                                     .b = {ah_cuda_data(before), false, width, 0},
                                                     .out = {ah_cuda_data(product), false, width, 0},
                                                     .tf32 = ah_precision()->matmul != AH_MATMUL_HIGHEST}));
    AH_TRY(ah_cuda_assign(c->device, left, product));
    AH_TRY(ah_op1(AH_OP_sum, &sums, AH_T((struct ah_tensor *)grad_hidden_gates), AH_INTS_OF((int64_t[]){0}, 1)));
    return ah_cuda_assign(c->device, last, sums);
}

/* The tensors of the backward. */
struct held {
    struct ah_tensor *grad_output, *output, *hidden, *cell; /* read */
    struct ah_tensor *grad_hidden_gates, *before;           /* as in the kernel's arguments */
    struct ah_tensor *grad_hidden, *grad_cell;              /* running */
};

static void recurrent_release(struct held *h)
{
    struct ah_tensor *all[] = {h->grad_output, h->output, h->hidden, h->cell,
                               h->grad_hidden_gates, h->before, h->grad_hidden, h->grad_cell};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ah_tensor_release(all[i]);
}

static int open_held(struct ah_call *c, const struct layer *l, struct held *h)
{
    const struct ah_args_recurrent_backward *arg = ah_args(c, recurrent_backward);
    AH_TRY(recurrent_dense(c, &h->grad_output, ah_given(&arg->grad_output), l->dtype));
    AH_TRY(recurrent_dense(c, &h->output, arg->output.tensor, l->dtype));
    AH_TRY(recurrent_dense(c, &h->hidden, arg->hidden.tensor, l->dtype));
    AH_TRY(recurrent_dense(c, &h->cell, ah_given(&arg->cell), l->dtype));
    AH_TRY(ah_tensor_empty(&h->before, h->output->size, 2, l->dtype, c->device));
    if (l->plan.kind == AH_GRU)
        AH_TRY(ah_tensor_empty(&h->grad_hidden_gates, c->out[0]->size, 2, l->dtype, c->device));
    else
        h->grad_hidden_gates = ah_tensor_retain(c->out[0]);
    AH_TRY(recurrent_begin(c, &h->grad_hidden, c->out[1], ah_given(&arg->grad_hidden), l->real));
    return c->out[3] ? recurrent_begin(c, &h->grad_cell, c->out[3], ah_given(&arg->grad_cell), l->real) : 0;
}

int ah_cuda_recurrent_backward(struct ah_call *c)
{
    const struct ah_args_recurrent_backward *arg = ah_args(c, recurrent_backward);
    struct ah_cuda_memory *memory = ah_cuda_state(c->device)->memory;
    struct ah_tensor *active = arg->active.tensor;
    struct layer l = {.weight = NULL};
    struct held h = {NULL};
    void *grad_later = NULL;
    int status;
    AH_TRYGO(open_layer(c, &l, active, arg->hidden.tensor, arg->weight.tensor, ah_given(&arg->batch_sizes),
                        arg->kind.string, arg->reverse.flag), out);
    if (c->out[2]->numel == 0)
        goto out;
    AH_TRYGO(open_held(c, &l, &h), out);
    AH_TRYGO(ah_cuda_memory_take(memory, (size_t)h.hidden->numel * ah_dtype_size(l.real), &grad_later), out);
    struct ah_recurrent_adjoint_args args = {
        .active = ah_cuda_data(active), .inner = ah_cuda_data(arg->inner.tensor), .output = ah_cuda_data(h.output),
        .first_hidden = ah_cuda_data(h.hidden), .first_cell = ah_cuda_data(h.cell),
        .grad_output = ah_cuda_data(h.grad_output), .grad_later = ah_cuda_address(grad_later),
        .grad_hidden = ah_cuda_data(h.grad_hidden), .grad_cell = ah_cuda_data(h.grad_cell),
        .grad_gates = ah_cuda_data(c->out[0]), .grad_hidden_gates = ah_cuda_data(h.grad_hidden_gates),
        .before = ah_cuda_data(h.before), .width = l.plan.width, .kind = l.plan.kind};
    AH_TRYGO(run_adjoint(c, &l, &args), out);
    AH_TRYGO(weight_adjoint(c, &l, h.grad_hidden_gates, h.before, c->out[2]), out);
    AH_TRYGO(ah_cuda_assign(c->device, c->out[1], h.grad_hidden), out);
    if (h.grad_cell)
        status = ah_cuda_assign(c->device, c->out[3], h.grad_cell);
out:
    ah_cuda_memory_give(memory, grad_later);
    recurrent_release(&h);
    close_layer(&l);
    return status;
}
