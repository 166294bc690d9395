/* Softmax, its logarithm, their adjoints, and softmax under a mask: tensors as the arrays of softmax.h. */
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/reduce/softmax.h"
#include "ops/dispatch/op.h"

/* Under a mask. */

int ah_cpu_masked_softmax(struct ah_call *c)
{
    const struct ah_args_masked_softmax *arg = ah_args(c, masked_softmax);
    struct ah_tensor *xt = arg->input.tensor, *mt = arg->mask.tensor, *out = c->out[0];
    struct ah_dense x = {0}, mask = {0};
    struct ah_dense_out y = {0};
    int64_t stride[AH_MAX_DIMS];
    struct ah_masked m = {.length = xt->size[xt->ndim - 1], .queries = xt->size[xt->ndim - 2],
                       .causal = arg->causal.flag, .boolean = mt && mt->dtype == AH_BOOL, .ndim = xt->ndim,
                       .size = xt->size, .stride = stride};
    int status;
    if (out->numel == 0)
        return 0;
    m.rows = out->numel / m.length;
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&mask, mt), out);
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    if (mt) {
        /* The mask as a row-major array, walked with the scores. */
        struct ah_tensor plain = *mt;
        ah_contiguous_strides(plain.size, plain.ndim, plain.stride);
        ah_broadcast_strides(&plain, xt->size, xt->ndim, stride);
    }
    if (ah_compute_dtype(out->dtype) == AH_F32)
        ah_masked_rows_f32(&m, x.data, y.data, mask.data);
    else
        ah_masked_rows_f64(&m, x.data, y.data, mask.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&mask);
    ah_dense_close(&x);
    return status;
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

static int softmax_run_forward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax *arg = ah_args(c, softmax);
    struct ah_tensor *xt = arg->input.tensor, *out = c->out[0], *cast = NULL;
    struct ah_dense x = {0};
    struct ah_dense_out y = {0};
    struct extent e = extent_at(out, arg->dim.integer);
    int status;
    if (out->numel == 0)
        return 0;
    if (xt->dtype != out->dtype) {
        AH_TRY(ah_op1(AH_OP_to, &cast, AH_T(xt), AH_D(out->dtype)));
        xt = cast;
    }
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    if (ah_compute_dtype(out->dtype) == AH_F32)
        ah_softmax_all_f32(x.data, y.data, e.outer, e.length, e.inner, log);
    else
        ah_softmax_all_f64(x.data, y.data, e.outer, e.length, e.inner, log);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&x);
    ah_tensor_release(cast);
    return status;
}

int ah_cpu_softmax(struct ah_call *c)
{
    return softmax_run_forward(c, false);
}

int ah_cpu_log_softmax(struct ah_call *c)
{
    return softmax_run_forward(c, true);
}

static int softmax_run_backward(struct ah_call *c, bool log)
{
    const struct ah_args_softmax_backward *arg = ah_args(c, softmax_backward);
    struct ah_tensor *out = c->out[0];
    struct ah_dense g = {0}, y = {0};
    struct ah_dense_out gx = {0};
    struct extent e = extent_at(out, arg->dim.integer);
    int status;
    if (out->numel == 0)
        return 0;
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&y, arg->output.tensor), out);
    AH_TRYGO(ah_dense_out_open(&gx, out), out);
    if (ah_compute_dtype(out->dtype) == AH_F32)
        ah_softmax_all_backward_f32(g.data, y.data, gx.data, e.outer, e.length, e.inner, log);
    else
        ah_softmax_all_backward_f64(g.data, y.data, gx.data, e.outer, e.length, e.inner, log);
out:
    ah_dense_out_close(&gx);
    ah_dense_close(&y);
    ah_dense_close(&g);
    return status;
}

int ah_cpu_softmax_backward(struct ah_call *c)
{
    return softmax_run_backward(c, false);
}

int ah_cpu_log_softmax_backward(struct ah_call *c)
{
    return softmax_run_backward(c, true);
}
