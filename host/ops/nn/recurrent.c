/* Recurrent layers: shapes of states and weights, the rows of every step. The data that the kernel keeps for the rule,
 * the activated gates and the data after them, has the dtype of its computation (float32 for fp16 and bf16).
 * batch_sizes is on the CPU whatever the device, so that the host knows the steps' rows without waiting. */
#include "ops/nn/recurrent.h"

#include <stdlib.h>
#include <string.h>

#include "ops/dispatch/rows.h"
#include "tensor/capture.h"

const struct ah_recurrent_kind ah_recurrent_kinds[AH_RECURRENT_KINDS] = {
    [AH_LSTM] = {"LSTM", 4, true},
    [AH_GRU] = {"GRU", 3, false},
    [AH_RNN_TANH] = {"RNN_TANH", 1, false},
    [AH_RNN_RELU] = {"RNN_RELU", 1, false},
};

int ah_recurrent_kind(const char *name)
{
    int kind = 0;
    while (kind + 1 < AH_RECURRENT_KINDS && strcmp(ah_recurrent_kinds[kind].name, name))
        kind++;
    return kind;
}

int ah_recurrent_plan_open(struct ah_recurrent_plan *plan, const struct ah_tensor *gates,
                           const struct ah_tensor *hidden, const struct ah_tensor *sizes, const char *kind,
                           bool reverse)
{
    plan->kind = ah_recurrent_kind(kind);
    plan->gates = ah_recurrent_kinds[plan->kind].gates;
    plan->sequences = hidden->size[0];
    plan->width = hidden->size[1];
    plan->rows = gates->size[0];
    plan->steps = sizes ? sizes->numel : plan->rows ? plan->rows / plan->sequences : 0;
    plan->reverse = reverse;
    plan->row = malloc((size_t)(2 * plan->steps + 1) * sizeof *plan->row);
    AH_TRY_MEMORY(plan->row, "recurrent: out of memory");
    plan->count = plan->row + plan->steps;
    for (int64_t t = 0, row = 0; t < plan->steps; t++) {
        plan->row[t] = row;
        row += plan->count[t] = sizes ? ah_tensor_get_int(sizes, t) : plan->sequences;
    }
    return 0;
}

void ah_recurrent_plan_close(struct ah_recurrent_plan *plan)
{
    free(plan->row);
    plan->row = NULL;
}

/* Rows of size `rows` x `columns` with dtype and device of the gates; absent ones allowed. */
static int recurrent_check(const char *name, const struct ah_tensor *t, int64_t rows, int64_t columns,
                           const struct ah_tensor *gates)
{
    const int64_t size[2] = {rows, columns};
    int ndim = columns < 0 ? 1 : 2;
    if (t && t->storage->device != gates->storage->device)
        return ah_fail(AH_EINVAL, "recurrent: expected all tensors but batch_sizes on one device, got gates on %s and "
                       "%s on %s", gates->storage->device->name, name, t->storage->device->name);
    if (!t || (t->ndim == ndim && t->size[0] == rows && (ndim == 1 || t->size[1] == columns) &&
               t->dtype == gates->dtype))
        return 0;
    return ah_fail(AH_EINVAL, "recurrent: expected %s %s %s, got %s %s", name, ah_dtype_name(gates->dtype),
                   ah_shape_text(size, ndim), ah_dtype_name(t->dtype), ah_shape(t));
}

/* Do the steps' sizes fall, from the number of sequences on, and add up to the rows of gates? */
static int check_sizes(const struct ah_tensor *sizes, int64_t rows, int64_t sequences)
{
    if (!sizes)
        return rows == 0 || (sequences > 0 && rows % sequences == 0)
                   ? 0 : ah_fail(AH_EINVAL, "recurrent: %lld rows are no whole number of steps of %lld sequences",
                                 (long long)rows, (long long)sequences);
    if (sizes->ndim != 1 || sizes->dtype != AH_I64 || !ah_on_cpu(sizes))
        return ah_fail(AH_EINVAL, "recurrent: expected batch_sizes int64 (T,) on cpu, got %s %s on %s",
                       ah_dtype_name(sizes->dtype), ah_shape(sizes), sizes->storage->device->name);
    AH_TRY(ah_capture_refuse("recurrent", "a packed sequence, whose sizes are values,",
                             "pad the sequences, or leave it out of the step"));
    int64_t total = 0, most = sequences;
    for (int64_t t = 0; t < sizes->numel; t++) {
        int64_t size = ah_tensor_get_int(sizes, t);
        if (size < 1 || size > most || (t == 0 && size != sequences))
            return ah_fail(AH_EINVAL, "recurrent: batch_sizes must fall from the number of sequences, %lld, and stay "
                           "above 0; step %lld has %lld", (long long)sequences, (long long)t, (long long)size);
        total += most = size;
    }
    return total == rows ? 0 : ah_fail(AH_EINVAL, "recurrent: batch_sizes add up to %lld, there are %lld rows",
                                       (long long)total, (long long)rows);
}

int ah_forward_recurrent(struct ah_call *c)
{
    const struct ah_args_recurrent *arg = ah_args(c, recurrent);
    const struct ah_tensor *gates = arg->gates.tensor, *hidden = arg->hidden.tensor, *cell = ah_given(&arg->cell);
    const struct ah_recurrent_kind *kind = &ah_recurrent_kinds[ah_recurrent_kind(arg->kind.string)];
    AH_TRY(ah_call_expect_float(c, 0));
    if (gates->ndim != 2 || hidden->ndim != 2)
        return ah_fail(AH_EINVAL, "recurrent: expected gates and hidden of 2 dims, got %s and %s", ah_shape(gates),
                       ah_shape(hidden));
    int64_t sequences = hidden->size[0], width = hidden->size[1];
    AH_TRY(recurrent_check("gates", gates, gates->size[0], kind->gates * width, gates));
    AH_TRY(recurrent_check("hidden", hidden, sequences, width, gates));
    AH_TRY(recurrent_check("cell", cell, sequences, width, gates));
    AH_TRY(recurrent_check("weight", arg->weight.tensor, kind->gates * width, width, gates));
    AH_TRY(recurrent_check("bias", ah_given(&arg->bias), kind->gates * width, -1, gates));
    AH_TRY(check_sizes(ah_given(&arg->batch_sizes), gates->size[0], sequences));
    if (kind->cell != (cell != NULL))
        return ah_fail(AH_EINVAL, "recurrent: %s %s a cell", kind->name, kind->cell ? "needs" : "has no");
    enum ah_dtype dtype = ah_compute_dtype(gates->dtype);
    AH_TRY(ah_call_output(c, 0, (int64_t[]){gates->size[0], width}, 2, gates->dtype));
    AH_TRY(ah_call_output(c, 1, hidden->size, 2, gates->dtype));
    if (cell)
        AH_TRY(ah_call_output(c, 2, hidden->size, 2, gates->dtype));
    AH_TRY(ah_tensor_empty(&c->extra[0], gates->size, 2, dtype, c->device));
    AH_TRY(ah_tensor_empty(&c->extra[1], (int64_t[]){gates->size[0], width}, 2, dtype, c->device));
    c->state.affine.weight = cell ? 3 : 2;
    c->state.affine.bias = ah_given(&arg->bias) ? c->state.affine.weight + 1 : 0;
    return ah_call_kernel(c);
}

int ah_forward_recurrent_backward(struct ah_call *c)
{
    const struct ah_args_recurrent_backward *arg = ah_args(c, recurrent_backward);
    const struct ah_tensor *active = arg->active.tensor, *hidden = arg->hidden.tensor;
    enum ah_dtype dtype = hidden->dtype;
    AH_TRY(ah_call_output(c, 0, active->size, 2, dtype));
    AH_TRY(ah_call_output(c, 1, hidden->size, 2, dtype));
    AH_TRY(ah_call_output(c, 2, (int64_t[]){active->size[1], hidden->size[1] + 1}, 2, dtype));
    if (ah_given(&arg->cell))
        AH_TRY(ah_call_output(c, 3, hidden->size, 2, dtype));
    return ah_call_kernel(c);
}
