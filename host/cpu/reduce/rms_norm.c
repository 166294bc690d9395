/* RMS norm: each row over the root of its mean square. The backward reads gradient and input once, giving the input's
 * gradient and, in chunks of rows of fixed size, the weight's, so that sums do not depend on the number of threads. */
#include <math.h>
#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

enum { CHUNK_ROWS = 64 };

#define LOOPS "cpu/reduce/rms_norm_loops.h"
#include "cpu/loop/for_reals.h"

/* Rows of bfloat16, converted in registers. */
static void rms_rows_bf16(int64_t rows, int64_t width, const uint16_t *x, const uint16_t *w, double eps, uint16_t *y,
                          float *inverse)
{
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * width, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < rows; i++) {
        const uint16_t *restrict from = x + i * width;
        uint16_t *restrict to = y + i * width;
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j < width; j++)
            squares += ah_bf16_to_f32(from[j]) * ah_bf16_to_f32(from[j]);
        float inv = 1 / sqrtf(squares / (float)width + (float)eps);
        inverse[i] = inv;
        if (w)
            for (int64_t j = 0; j < width; j++)
                to[j] = ah_f32_to_bf16(ah_bf16_to_f32(from[j]) * inv * ah_bf16_to_f32(w[j]));
        else
            for (int64_t j = 0; j < width; j++)
                to[j] = ah_f32_to_bf16(ah_bf16_to_f32(from[j]) * inv);
    }
}

int ah_cpu_rms_norm(struct ah_call *c)
{
    const struct ah_args_rms_norm *arg = ah_args(c, rms_norm);
    struct ah_tensor *xt = arg->input.tensor, *inverse = c->extra[0];
    struct ah_arrays a = {0};
    int64_t rows = inverse->numel, width = rows ? xt->numel / rows : 0;
    if (xt->dtype == AH_BF16 && c->out[0]->dtype == AH_BF16) {
        const uint16_t *half = ah_array_as_is(&a, xt), *weight = ah_array_as_is(&a, arg->weight.tensor);
        if (a.status == 0)
            rms_rows_bf16(rows, width, half, weight, c->state.root.eps, ah_tensor_data(c->out[0]),
                          ah_tensor_data(inverse));
        return ah_arrays_close(&a);
    }
    const void *x = ah_array_in(&a, xt), *w = ah_array_in(&a, arg->weight.tensor);
    void *y = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        AH_BY_REAL(inverse->dtype, rms_rows, rows, width, x, w, c->state.root.eps, y, ah_tensor_data(inverse));
    return ah_arrays_close(&a);
}

int ah_cpu_rms_norm_backward(struct ah_call *c)
{
    const struct ah_args_rms_norm_backward *arg = ah_args(c, rms_norm_backward);
    struct ah_tensor *xt = arg->input.tensor, *inverse = arg->inverse.tensor;
    struct ah_arrays a = {0};
    int64_t rows = inverse->numel, width = rows ? xt->numel / rows : 0;
    if (arg->with_weight.flag)
        width = c->out[1]->numel; /* which gets zeros where there are no rows */
    const void *g = ah_array_in(&a, arg->grad.tensor), *x = ah_array_in(&a, xt);
    const void *w = ah_array_in(&a, arg->weight.tensor), *factor = ah_tensor_data(inverse);
    void *gx = ah_array_out(&a, c->out[0]), *gw = arg->with_weight.flag ? ah_array_out(&a, c->out[1]) : NULL;
    if (a.status == 0)
        a.status = AH_BY_REAL(inverse->dtype, rms_backward, rows, width, g, x, w, factor, gx, gw);
    return ah_arrays_close(&a);
}
