/* Kernels of binary cross entropy: one term per element, from a probability or from a logit without overflow. */

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

/* Logarithms are cut at -100, so that a wrong certainty costs much but not infinitely. */
#define PROBABILITY(suffix, real, LOG)                                                                      \
    static void probability_##suffix(const real *restrict p, const real *restrict t, real *restrict y,      \
                                     int64_t n)                                                             \
    {                                                                                                       \
        _Pragma("omp parallel for simd schedule(static) if (ah_worth_threads(n, AH_SHARE_HEAVY))")          \
        for (int64_t i = 0; i < n; i++) {                                                                   \
            real a = LOG(p[i]), b = LOG(1 - p[i]);                                                          \
            a = a < -100 ? -100 : a;                                                                        \
            b = b < -100 ? -100 : b;                                                                        \
            y[i] = (t[i] - 1) * b - t[i] * a;                                                               \
        }                                                                                                   \
    }
PROBABILITY(f32, float, ah_logf)
PROBABILITY(f64, double, ah_log)

#define LOGIT(suffix, real, EXP, LOG1P, FACTOR)                                                             \
    static void logit_##suffix(const real *restrict x, const real *restrict t, const real *w, int64_t n,    \
                               real *restrict y)                                                            \
    {                                                                                                       \
        _Pragma("omp parallel for simd schedule(static) if (ah_worth_threads(n, AH_SHARE_HEAVY))")          \
        for (int64_t i = 0; i < n; i++) {                                                                   \
            real size = x[i] < 0 ? -x[i] : x[i];                                                            \
            real softplus = LOG1P(EXP(-size)) + (x[i] < 0 ? -x[i] : 0);                                     \
            y[i] = (1 - t[i]) * x[i] + FACTOR * softplus;                                                   \
        }                                                                                                   \
    }
LOGIT(f32, float, ah_expf, ah_log1p_unitf, 1)
LOGIT(f64, double, ah_exp, ah_log1p, 1)
LOGIT(weighted_f32, float, ah_expf, ah_log1p_unitf, (1 + (w[i] - 1) * t[i]))
LOGIT(weighted_f64, double, ah_exp, ah_log1p, (1 + (w[i] - 1) * t[i]))

#define OUTSIDE(suffix, real)                                                                               \
    static bool has_outside_##suffix(const real *x, int64_t n)                                              \
    {                                                                                                       \
        int outside = 0;                                                                                    \
        _Pragma("omp parallel for simd schedule(static) reduction(| : outside) \
                 if (ah_worth_threads(n, AH_SHARE_LIGHT))")                                                 \
        for (int64_t i = 0; i < n; i++)                                                                     \
            outside |= !(x[i] >= 0 && x[i] <= 1);                                                           \
        return outside;                                                                                     \
    }
OUTSIDE(f32, float)
OUTSIDE(f64, double)

static int expect_shares(const char *name, const void *data, bool single, int64_t count)
{
    if (!(single ? has_outside_f32(data, count) : has_outside_f64(data, count)))
        return 0;
    for (int64_t i = 0;; i++) {
        double v = single ? (double)((const float *)data)[i] : ((const double *)data)[i];
        if (!(v >= 0 && v <= 1)) {
            return ah_fail(AH_EINVAL, "binary_cross_entropy: %s %g at position %lld is outside 0..1", name, v,
                           (long long)i);
        }
    }
}

int ah_cpu_probability_nll(struct ah_call *c)
{
    const struct ah_args_probability_nll *arg = ah_args(c, probability_nll);
    struct ah_tensor *out = c->out[0];
    struct ah_arrays a = {0};
    const void *p = ah_array_in(&a, arg->input.tensor), *t = ah_array_in(&a, arg->target.tensor);
    void *y = ah_array_out(&a, out);
    bool single = ah_compute_dtype(out->dtype) == AH_F32;
    if (a.status == 0)
        a.status = expect_shares("input", p, single, out->numel);
    if (a.status == 0)
        a.status = expect_shares("target", t, single, out->numel);
    if (a.status == 0)
        AH_BY_REAL(out->dtype, probability, p, t, y, out->numel);
    return ah_arrays_close(&a);
}

int ah_cpu_logit_nll(struct ah_call *c)
{
    const struct ah_args_logit_nll *arg = ah_args(c, logit_nll);
    struct ah_tensor *out = c->out[0], *wt = arg->pos_weight.tensor, *stretched = NULL;
    struct ah_arrays a = {0};
    if (wt) {
        int64_t stride[AH_MAX_DIMS];
        ah_broadcast_strides(wt, out->size, out->ndim, stride);
        AH_TRY(ah_tensor_view(&stretched, wt, out->size, stride, out->ndim, wt->offset));
    }
    const void *x = ah_array_in(&a, arg->input.tensor), *t = ah_array_in(&a, arg->target.tensor);
    const void *w = ah_array_in(&a, stretched);
    void *y = ah_array_out(&a, out);
    if (a.status == 0 && wt)
        AH_BY_REAL(out->dtype, logit_weighted, x, t, w, out->numel, y);
    else if (a.status == 0)
        AH_BY_REAL(out->dtype, logit, x, t, NULL, out->numel, y);
    ah_tensor_release(stretched);
    return ah_arrays_close(&a);
}
