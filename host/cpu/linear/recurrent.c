/* Recurrent layers: a product and the gates of each step forward; back through the steps, then one product over all of
 * them for the weight. Rows of sequences that have ended, or not begun, keep their running state untouched, which makes
 * batches of unequal lengths correct in both directions. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/kernels.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/dense.h"
#include "ops/nn/recurrent.h"

#define LOOPS "cpu/linear/recurrent_loops.h"
#include "cpu/loop/for_reals.h"

/* A last state, to be run in place: the first one, or zeros. */
static void *recurrent_state(struct ah_arrays *a, struct ah_tensor *out, const void *first)
{
    void *state = ah_array_out(a, out);
    size_t bytes = (size_t)out->numel * ah_dtype_size(ah_compute_dtype(out->dtype));
    if (state && first)
        memcpy(state, first, bytes);
    else if (state)
        memset(state, 0, bytes);
    return state;
}

int ah_cpu_recurrent(struct ah_call *c)
{
    const struct ah_args_recurrent *arg = ah_args(c, recurrent);
    struct ah_tensor *gt = arg->gates.tensor, *ht = arg->hidden.tensor;
    enum ah_dtype dtype = ah_compute_dtype(gt->dtype);
    AH_CLEANUP(ah_recurrent_plan_close) struct ah_recurrent_plan plan = {0};
    struct ah_arrays a = {0};
    a.status = ah_recurrent_plan_open(&plan, gt, ht, ah_given(&arg->batch_sizes), arg->kind.string, arg->reverse.flag);
    const void *gates = ah_array_in(&a, gt), *hidden = ah_array_in(&a, ht);
    const void *cell = ah_array_in(&a, ah_given(&arg->cell));
    const void *weight = ah_array_in(&a, arg->weight.tensor), *bias = ah_array_in(&a, ah_given(&arg->bias));
    void *hidden_gates = ah_array_scratch(&a, (size_t)(ht->numel * plan.gates) * ah_dtype_size(dtype));
    void *output = ah_array_out(&a, c->out[0]), *last_hidden = recurrent_state(&a, c->out[1], hidden);
    void *last_cell = cell ? recurrent_state(&a, c->out[2], cell) : NULL;
    void *active = ah_tensor_data(c->extra[0]), *inner = ah_tensor_data(c->extra[1]);
    if (a.status == 0 && dtype == AH_F32)
        run_layer_f32(&plan, &(struct layer_f32){gates, weight, bias, last_hidden, last_cell, output, active, inner,
                                                 hidden_gates});
    else if (a.status == 0)
        run_layer_f64(&plan, &(struct layer_f64){gates, weight, bias, last_hidden, last_cell, output, active, inner,
                                                 hidden_gates});
    return ah_arrays_close(&a);
}

int ah_cpu_recurrent_backward(struct ah_call *c)
{
    const struct ah_args_recurrent_backward *arg = ah_args(c, recurrent_backward);
    struct ah_tensor *active = arg->active.tensor, *inner = arg->inner.tensor;
    struct ah_arrays a = {0};
    AH_CLEANUP(ah_recurrent_plan_close) struct ah_recurrent_plan plan = {0};
    a.status = ah_recurrent_plan_open(&plan, active, arg->hidden.tensor, ah_given(&arg->batch_sizes), arg->kind.string,
                                      arg->reverse.flag);
    size_t item = ah_dtype_size(active->dtype), wide = (size_t)(plan.gates * plan.width), rows = (size_t)plan.rows;
    const void *grad_output = ah_array_in(&a, ah_given(&arg->grad_output));
    const void *grad_hidden = ah_array_in(&a, ah_given(&arg->grad_hidden));
    const void *grad_cell = ah_array_in(&a, ah_given(&arg->grad_cell)), *output = ah_array_in(&a, arg->output.tensor);
    const void *hidden = ah_array_in(&a, arg->hidden.tensor), *cell = ah_array_in(&a, ah_given(&arg->cell));
    const void *weight = ah_array_in(&a, arg->weight.tensor);
    void *before = ah_array_scratch(&a, rows * (size_t)plan.width * item), *sums = ah_array_scratch(&a, wide * item);
    void *gates = ah_array_out(&a, c->out[0]), *first_hidden = recurrent_state(&a, c->out[1], grad_hidden);
    void *hidden_gates = plan.kind == AH_GRU ? ah_array_scratch(&a, rows * wide * item) : gates;
    void *weights = ah_array_out(&a, c->out[2]);
    void *first_cell = c->out[3] ? recurrent_state(&a, c->out[3], grad_cell) : NULL;
    if (a.status == 0 && active->dtype == AH_F32)
        a.status = run_adjoint_f32(&plan, &(struct adjoint_f32){
            weight, output, ah_tensor_data(active), ah_tensor_data(inner), grad_output, hidden, cell, first_hidden,
            first_cell, gates, hidden_gates, before}, sums, weights);
    else if (a.status == 0)
        a.status = run_adjoint_f64(&plan, &(struct adjoint_f64){
            weight, output, ah_tensor_data(active), ah_tensor_data(inner), grad_output, hidden, cell, first_hidden,
            first_cell, gates, hidden_gates, before}, sums, weights);
    return ah_arrays_close(&a);
}
