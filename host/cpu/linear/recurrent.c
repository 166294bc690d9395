/* Recurrent layers: a product and the gates of each step forward; back through the steps, then one product over all of
 * them for the weight. Rows of sequences that have ended, or not begun, keep their running state untouched, which makes
 * batches of unequal lengths correct in both directions. */
#include <math.h>
#include <string.h>

#include "cpu/elementwise/elementwise_math.h"
#include "base/process/parallel.h"
#include "cpu/kernels.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/dense.h"
#include "ops/nn/recurrent.h"

#define LOOPS "cpu/linear/recurrent_loops.h"
#include "cpu/loop/for_reals.h"

/* The starting state, copied to where it will run. */
static void recurrent_begin(struct ah_dense_out *state, const struct ah_dense *first, const struct ah_tensor *like,
                            size_t item)
{
    size_t bytes = (size_t)like->numel * item;
    if (first->data)
        memcpy(state->data, first->data, bytes);
    else
        memset(state->data, 0, bytes);
}

int ah_cpu_recurrent(struct ah_call *c)
{
    const struct ah_args_recurrent *arg = ah_args(c, recurrent);
    struct ah_tensor *gt = arg->gates.tensor, *ht = arg->hidden.tensor;
    enum ah_dtype dtype = ah_compute_dtype(gt->dtype);
    size_t item = ah_dtype_size(dtype);
    struct ah_dense gates = {0}, hidden = {0}, cell = {0}, weight = {0}, bias = {0}, share = {0};
    struct ah_dense_out output = {0}, last_hidden = {0}, last_cell = {0};
    struct ah_recurrent_plan plan = {0};
    int status;
    AH_TRYGO(ah_recurrent_plan_open(&plan, gt, ht, ah_given(&arg->batch_sizes), arg->kind.string, arg->reverse.flag),
             out);
    AH_TRYGO(ah_dense_open(&gates, gt), out);
    AH_TRYGO(ah_dense_open(&hidden, ht), out);
    AH_TRYGO(ah_dense_open(&cell, ah_given(&arg->cell)), out);
    AH_TRYGO(ah_dense_open(&weight, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_open(&bias, ah_given(&arg->bias)), out);
    AH_TRYGO(ah_dense_scratch(&share, (size_t)(ht->numel * plan.gates) * item), out);
    AH_TRYGO(ah_dense_out_open(&output, c->out[0]), out);
    AH_TRYGO(ah_dense_out_open(&last_hidden, c->out[1]), out);
    recurrent_begin(&last_hidden, &hidden, ht, item);
    if (cell.data) {
        AH_TRYGO(ah_dense_out_open(&last_cell, c->out[2]), out);
        recurrent_begin(&last_cell, &cell, ht, item);
    }
    void *active = ah_tensor_data(c->extra[0]), *inner = ah_tensor_data(c->extra[1]);
    if (dtype == AH_F32)
        run_layer_f32(&plan, &(struct layer_f32){gates.data, weight.data, bias.data, last_hidden.data, last_cell.data,
                                                 output.data, active, inner, share.block});
    else
        run_layer_f64(&plan, &(struct layer_f64){gates.data, weight.data, bias.data, last_hidden.data, last_cell.data,
                                                 output.data, active, inner, share.block});
out:
    ah_dense_out_close(&last_cell);
    ah_dense_out_close(&last_hidden);
    ah_dense_out_close(&output);
    ah_dense_close(&share);
    ah_dense_close(&bias);
    ah_dense_close(&weight);
    ah_dense_close(&cell);
    ah_dense_close(&hidden);
    ah_dense_close(&gates);
    ah_recurrent_plan_close(&plan);
    return status;
}

/* Everything the backward reads and writes, opened and closed together. */
struct arrays {
    struct ah_dense grad_output, grad_hidden, grad_cell, output, hidden, cell, weight, before, share, sums;
    struct ah_dense_out gates, first_hidden, weights, first_cell;
};

static int open_arrays(struct arrays *a, struct ah_call *c, const struct ah_recurrent_plan *plan, size_t item)
{
    const struct ah_args_recurrent_backward *arg = ah_args(c, recurrent_backward);
    struct ah_tensor *hidden = arg->hidden.tensor;
    size_t wide = (size_t)(plan->gates * plan->width), rows = (size_t)plan->rows;
    AH_TRY(ah_dense_open(&a->grad_output, ah_given(&arg->grad_output)));
    AH_TRY(ah_dense_open(&a->grad_hidden, ah_given(&arg->grad_hidden)));
    AH_TRY(ah_dense_open(&a->grad_cell, ah_given(&arg->grad_cell)));
    AH_TRY(ah_dense_open(&a->output, arg->output.tensor));
    AH_TRY(ah_dense_open(&a->hidden, hidden));
    AH_TRY(ah_dense_open(&a->cell, ah_given(&arg->cell)));
    AH_TRY(ah_dense_open(&a->weight, arg->weight.tensor));
    AH_TRY(ah_dense_scratch(&a->before, rows * (size_t)plan->width * item));
    AH_TRY(ah_dense_scratch(&a->sums, wide * item));
    if (plan->kind == AH_GRU)
        AH_TRY(ah_dense_scratch(&a->share, rows * wide * item));
    AH_TRY(ah_dense_out_open(&a->gates, c->out[0]));
    AH_TRY(ah_dense_out_open(&a->first_hidden, c->out[1]));
    AH_TRY(ah_dense_out_open(&a->weights, c->out[2]));
    recurrent_begin(&a->first_hidden, &a->grad_hidden, hidden, item);
    if (!c->out[3])
        return 0;
    AH_TRY(ah_dense_out_open(&a->first_cell, c->out[3]));
    recurrent_begin(&a->first_cell, &a->grad_cell, hidden, item);
    return 0;
}

static void close_arrays(struct arrays *a)
{
    struct ah_dense *in[] = {&a->grad_output, &a->grad_hidden, &a->grad_cell, &a->output, &a->hidden,
                             &a->cell, &a->weight, &a->before, &a->share, &a->sums};
    struct ah_dense_out *out[] = {&a->gates, &a->first_hidden, &a->weights, &a->first_cell};
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        ah_dense_out_close(out[i]);
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
        ah_dense_close(in[i]);
}

int ah_cpu_recurrent_backward(struct ah_call *c)
{
    const struct ah_args_recurrent_backward *arg = ah_args(c, recurrent_backward);
    struct ah_tensor *active = arg->active.tensor, *inner = arg->inner.tensor;
    struct arrays a = {0};
    struct ah_recurrent_plan plan = {0};
    int status;
    AH_TRYGO(ah_recurrent_plan_open(&plan, active, arg->hidden.tensor, ah_given(&arg->batch_sizes), arg->kind.string,
                                    arg->reverse.flag), out);
    AH_TRYGO(open_arrays(&a, c, &plan, ah_dtype_size(active->dtype)), out);
    void *share = plan.kind == AH_GRU ? a.share.block : a.gates.data;
    if (active->dtype == AH_F32)
        status = run_adjoint_f32(&plan, &(struct adjoint_f32){
            a.weight.data, a.output.data, ah_tensor_data(active), ah_tensor_data(inner), a.grad_output.data,
            a.hidden.data, a.cell.data, a.first_hidden.data, a.first_cell.data, a.gates.data, share, a.before.block},
            a.sums.block, a.weights.data);
    else
        status = run_adjoint_f64(&plan, &(struct adjoint_f64){
            a.weight.data, a.output.data, ah_tensor_data(active), ah_tensor_data(inner), a.grad_output.data,
            a.hidden.data, a.cell.data, a.first_hidden.data, a.first_cell.data, a.gates.data, share, a.before.block},
            a.sums.block, a.weights.data);
out:
    close_arrays(&a);
    ah_recurrent_plan_close(&plan);
    return status;
}
