/* Softmax, its logarithm, their adjoints, and softmax under a mask: tensors as the arrays of softmax.h. */
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/reduce/softmax.h"
#include "ops/dispatch/op.h"

/* Under a mask. */

int ah_cpu_masked_softmax(struct ah_call *c)
{
    const struct ah_args_masked_softmax *arg = ah_args(c, masked_softmax);
    struct ah_tensor *xt = arg->input.tensor, *mt = arg->mask.tensor, *out = c->out[0];
    int64_t stride[AH_MAX_DIMS];
    struct ah_masked m = {.length = xt->size[xt->ndim - 1], .queries = xt->size[xt->ndim - 2],
                          .causal = arg->causal.flag, .boolean = mt && mt->dtype == AH_BOOL, .ndim = xt->ndim,
                          .size = xt->size, .stride = stride};
    if (out->numel == 0)
        return 0;
    m.rows = out->numel / m.length;
    if (mt) {
        /* The mask as a row-major array, walked with the scores. */
        struct ah_tensor plain = *mt;
        ah_contiguous_strides(plain.size, plain.ndim, plain.stride);
        ah_broadcast_strides(&plain, xt->size, xt->ndim, stride);
    }
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, xt), *mask = ah_array_in(&a, mt);
    void *y = ah_array_out(&a, out);
    if (a.status == 0)
        AH_BY_REAL(out->dtype, ah_masked_rows, &m, x, y, mask);
    return ah_arrays_close(&a);
}

/* Over any dim. */

struct extent {
    int64_t outer, length, inner;
};

static struct extent extent_at(const struct ah_tensor *t, int64_t dim)
{
    struct extent e = {1, 1, 1};
    if (t->ndim == 0)
        return e;
    if (dim < 0)
        dim += t->ndim;
    for (int64_t d = 0; d < t->ndim; d++)
        *(d < dim ? &e.outer : d == dim ? &e.length : &e.inner) *= t->size[d];
    return e;
}

static bool is_half(const struct ah_tensor *t)
{
    return ah_compute_dtype(t->dtype) != t->dtype;
}

/* Open the arrays of rows that are converted, compute and close them. */
static int softmax_rows(struct ah_tensor *x, struct ah_tensor *y, struct ah_tensor *out, const struct extent *e,
                        bool log)
{
    struct ah_arrays a = {0};
    struct ah_softmax_items of = {ah_items_in(&a, x), ah_items_in(&a, y), ah_items_out(out), NULL};
    int64_t block = ah_softmax_block(e->length) * e->length;
    of.room = ah_array_scratch(&a, (size_t)(ah_num_threads() * AH_SOFTMAX_ROOM * block) * sizeof(float));
    if (a.status == 0)
        (y ? ah_softmax_rows_backward : ah_softmax_rows)(&of, e->outer, e->length, log);
    return ah_arrays_close(&a);
}

static int softmax_run_forward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax *arg = ah_args(c, softmax);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0];
    AH_OWNED struct ah_tensor *cast = NULL;
    struct extent e = extent_at(out, arg->dim.integer);
    if (out->numel == 0)
        return 0;
    bool exact = xt->dtype == out->dtype || out->dtype == AH_F32; /* converted to the result's dtype */
    if (is_half(xt) && exact && ah_softmax_by_rows(e.length, e.inner))
        return softmax_rows(xt, NULL, out, &e, log);
    if (xt->dtype != out->dtype) {
        AH_TRY(ah_op1(AH_OP_to, &cast, AH_T(xt), AH_D(out->dtype)));
        xt = cast;
    }
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, xt);
    void *y = ah_array_out(&a, out);
    if (a.status == 0)
        AH_BY_REAL(out->dtype, ah_softmax_all, x, y, e.outer, e.length, e.inner, log);
    return ah_arrays_close(&a);
}

AH_CPU_OP(softmax, softmax_run_forward(c, false))
AH_CPU_OP(log_softmax, softmax_run_forward(c, true))

static int softmax_run_backward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax_backward *arg = ah_args(c, softmax_backward);
    struct ah_tensor *out = c->out[0];
    struct extent e = extent_at(out, arg->dim.integer);
    if (out->numel == 0)
        return 0;
    if (is_half(out) && ah_softmax_by_rows(e.length, e.inner))
        return softmax_rows(arg->grad.tensor, arg->output.tensor, out, &e, log);
    struct ah_arrays a = {0};
    const void *g = ah_array_in(&a, arg->grad.tensor), *y = ah_array_in(&a, arg->output.tensor);
    void *gx = ah_array_out(&a, out);
    if (a.status == 0)
        AH_BY_REAL(out->dtype, ah_softmax_all_backward, g, y, gx, e.outer, e.length, e.inner, log);
    return ah_arrays_close(&a);
}

AH_CPU_OP(softmax_backward, softmax_run_backward(c, false))
AH_CPU_OP(log_softmax_backward, softmax_run_backward(c, true))
