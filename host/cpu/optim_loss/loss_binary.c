/* Kernels of binary cross entropy: one term per element, from a probability or from a logit without overflow. */
#include <math.h>

#include "cpu/elementwise/elementwise_math.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

/* Logarithms are cut at -100, so that a wrong certainty costs much but not infinitely. */
#define PROBABILITY(suffix, real, LOG)                                                                      \
    static void probability_##suffix(const real *restrict p, const real *restrict t, real *restrict y,      \
                                     int64_t n)                                                             \
    {                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                   \
            real a = LOG(p[i]), b = LOG(1 - p[i]);                                                          \
            a = a < -100 ? -100 : a;                                                                        \
            b = b < -100 ? -100 : b;                                                                        \
            y[i] = (t[i] - 1) * b - t[i] * a;                                                               \
        }                                                                                                   \
    }
PROBABILITY(f32, float, ah_logf)
PROBABILITY(f64, double, log)

#define LOGIT(suffix, real, EXP, LOG1P, FACTOR)                                                             \
    static void logit_##suffix(const real *restrict x, const real *restrict t, const real *w, int64_t n,    \
                               real *restrict y)                                                            \
    {                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                   \
            real size = x[i] < 0 ? -x[i] : x[i];                                                            \
            real softplus = LOG1P(EXP(-size)) + (x[i] < 0 ? -x[i] : 0);                                     \
            y[i] = (1 - t[i]) * x[i] + FACTOR * softplus;                                                   \
        }                                                                                                   \
    }
LOGIT(f32, float, ah_expf, ah_log1pf, 1)
LOGIT(f64, double, exp, log1p, 1)
LOGIT(weighted_f32, float, ah_expf, ah_log1pf, (1 + (w[i] - 1) * t[i]))
LOGIT(weighted_f64, double, exp, log1p, (1 + (w[i] - 1) * t[i]))

static int expect_shares(const char *name, const void *data, bool single, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double v = single ? (double)((const float *)data)[i] : ((const double *)data)[i];
        if (!(v >= 0 && v <= 1)) {
            return ah_fail(AH_EINVAL, "binary_cross_entropy: %s %g at position %lld is outside 0..1", name, v,
                           (long long)i);
        }
    }
    return 0;
}

int ah_cpu_probability_nll(struct ah_call *c)
{
    const struct ah_args_probability_nll *arg = ah_args(c, probability_nll);
    struct ah_tensor *out = c->out[0];
    struct ah_dense p = {0}, t = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(ah_dense_open(&p, arg->input.tensor), out);
    AH_TRYGO(ah_dense_open(&t, arg->target.tensor), out);
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    bool single = ah_compute_dtype(out->dtype) == AH_F32;
    AH_TRYGO(expect_shares("input", p.data, single, out->numel), out);
    AH_TRYGO(expect_shares("target", t.data, single, out->numel), out);
    if (single)
        probability_f32(p.data, t.data, y.data, out->numel);
    else
        probability_f64(p.data, t.data, y.data, out->numel);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&t);
    ah_dense_close(&p);
    return status;
}

int ah_cpu_logit_nll(struct ah_call *c)
{
    const struct ah_args_logit_nll *arg = ah_args(c, logit_nll);
    struct ah_tensor *out = c->out[0], *wt = arg->pos_weight.tensor, *stretched = NULL;
    struct ah_dense x = {0}, t = {0}, w = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(ah_dense_open(&x, arg->input.tensor), out);
    AH_TRYGO(ah_dense_open(&t, arg->target.tensor), out);
    if (wt) {
        int64_t stride[AH_MAX_DIMS];
        ah_broadcast_strides(wt, out->size, out->ndim, stride);
        AH_TRYGO(ah_tensor_view(&stretched, wt, out->size, stride, out->ndim, wt->offset), out);
        AH_TRYGO(ah_dense_open(&w, stretched), out);
    }
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    if (ah_compute_dtype(out->dtype) == AH_F32)
        (wt ? logit_weighted_f32 : logit_f32)(x.data, t.data, w.data, out->numel, y.data);
    else
        (wt ? logit_weighted_f64 : logit_f64)(x.data, t.data, w.data, out->numel, y.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&w);
    ah_dense_close(&t);
    ah_dense_close(&x);
    ah_tensor_release(stretched);
    return status;
}
