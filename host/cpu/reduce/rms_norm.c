/* RMS norm: each row over the root of its mean square. The backward reads gradient and input once, giving the input's
 * gradient and, in chunks of rows of fixed size, the weight's, so that sums do not depend on the number of threads. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "base/process/parallel.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

enum { CHUNK_ROWS = 64 };

#define LOOPS "cpu/reduce/rms_norm_loops.h"
#include "cpu/loop/for_reals.h"

int ah_cpu_rms_norm(struct ah_call *c)
{
    const struct ah_args_rms_norm *arg = ah_args(c, rms_norm);
    struct ah_tensor *xt = arg->input.tensor, *inverse = c->extra[0];
    struct ah_dense x = {0}, w = {0};
    struct ah_dense_out y = {0};
    int64_t rows = inverse->numel, width = rows ? xt->numel / rows : 0;
    int status;
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    double eps = c->state.root.eps;
    if (inverse->dtype == AH_F32)
        rms_rows_f32(rows, width, x.data, w.data, eps, y.data, ah_tensor_data(inverse));
    else
        rms_rows_f64(rows, width, x.data, w.data, eps, y.data, ah_tensor_data(inverse));
out:
    ah_dense_out_close(&y);
    ah_dense_close(&w);
    ah_dense_close(&x);
    return status;
}

int ah_cpu_rms_norm_backward(struct ah_call *c)
{
    const struct ah_args_rms_norm_backward *arg = ah_args(c, rms_norm_backward);
    struct ah_tensor *xt = arg->input.tensor, *inverse = arg->inverse.tensor;
    struct ah_dense g = {0}, x = {0}, w = {0};
    struct ah_dense_out gx = {0}, gw = {0};
    int64_t rows = inverse->numel, width = rows ? xt->numel / rows : 0;
    int status;
    if (arg->with_weight.flag)
        width = c->out[1]->numel; /* which gets zeros where there are no rows */
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_out_open(&gx, c->out[0]), out);
    if (arg->with_weight.flag)
        AH_TRYGO(ah_dense_out_open(&gw, c->out[1]), out);
    if (inverse->dtype == AH_F32)
        status = rms_backward_f32(rows, width, g.data, x.data, w.data, ah_tensor_data(inverse), gx.data, gw.data);
    else
        status = rms_backward_f64(rows, width, g.data, x.data, w.data, ah_tensor_data(inverse), gx.data, gw.data);
out:
    ah_dense_out_close(&gw);
    ah_dense_out_close(&gx);
    ah_dense_close(&w);
    ah_dense_close(&x);
    ah_dense_close(&g);
    return status;
}
