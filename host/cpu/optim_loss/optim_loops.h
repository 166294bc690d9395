/* The loops of host/cpu/optim_loss/optim.c for one type, by cpu/loop/for_reals.h.
 *
 * Every loop is the chain of PyTorch's tensor operations for one element. PyTorch's add with alpha and its addcmul
 * are one fused multiply-add each (its vector code is compiled with contraction), hence FMA here. Scalars are rounded
 * to REAL where PyTorch rounds them. `always_inline` with constant flags makes one loop per combination. */

struct SUFFIX(scalars) {
#define FIELD(name) REAL name;
    AH_OPTIM_SCALARS_OF(FIELD)
#undef FIELD
    bool near_old, rectified;
};

#include "cpu/optim_loss/optim_adam_loops.h"

static void SUFFIX(set_scalars)(struct SUFFIX(scalars) *s, enum ah_optim_kind kind, const struct ah_optim_options *o,
                              double step, const double *scalar)
{
    struct ah_optim_scalars wide;
    ah_optim_set_scalars(&wide, kind, o, step, scalar);
#define FIELD(name) s->name = (REAL)wide.name;
    AH_OPTIM_SCALARS_OF(FIELD)
#undef FIELD
    s->near_old = wide.near_old;
    s->rectified = wide.rectified;
    if (!s->near_old)
        s->lerp -= 1;
}

static inline __attribute__((always_inline)) void SUFFIX(sgd_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p,
                                                                   const REAL *restrict g, REAL *restrict buffer,
                                                                   int64_t n, const bool decay, const bool first,
                                                                   const bool nesterov)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i];
        if (decay)
            grad = FMA(k.weight_decay, p[i], grad);
        if (buffer) {
            REAL moved = first ? grad : FMA(k.one_minus_dampening, grad, buffer[i] * k.momentum);
            buffer[i] = moved;
            grad = nesterov ? FMA(k.momentum, moved, grad) : moved;
        }
        p[i] = FMA(k.negative_lr, grad, p[i]);
    }
}

static inline __attribute__((always_inline)) void SUFFIX(rmsprop_loop)(const struct SUFFIX(scalars) *s,
                                                                       REAL *restrict p, const REAL *restrict g,
                                                                       REAL *restrict square, REAL *restrict buffer,
                                                                       REAL *restrict mean, int64_t n, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i];
        if (decay)
            grad = FMA(k.weight_decay, p[i], grad);
        REAL average = FMA(k.one_minus_alpha * grad, grad, square[i] * k.alpha);
        square[i] = average;
        if (mean) {
            REAL centre = SUFFIX(mean)(&k, mean[i], grad);
            mean[i] = centre;
            average = FMA(-centre, centre, average);
        }
        REAL root = SQRT(average) + k.eps;
        if (buffer) {
            REAL moved = buffer[i] * k.momentum + grad / root;
            buffer[i] = moved;
            p[i] = FMA(k.negative_lr, moved, p[i]);
        } else {
            p[i] = p[i] + k.negative_lr * grad / root;
        }
    }
}

static inline __attribute__((always_inline)) void SUFFIX(adagrad_loop)(const struct SUFFIX(scalars) *s,
                                                                       REAL *restrict p, const REAL *restrict g,
                                                                       REAL *restrict sum, int64_t n, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i];
        if (decay)
            grad = FMA(k.weight_decay, p[i], grad);
        REAL total = FMA(grad, grad, sum[i]);
        sum[i] = total;
        p[i] = p[i] + k.negative_step_size * grad / (SQRT(total) + k.eps);
    }
}

static inline __attribute__((always_inline)) void SUFFIX(adadelta_loop)(const struct SUFFIX(scalars) *s,
                                                                        REAL *restrict p, const REAL *restrict g,
                                                                        REAL *restrict square, REAL *restrict moved,
                                                                        int64_t n, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i];
        if (decay)
            grad = FMA(k.weight_decay, p[i], grad);
        REAL average = FMA(k.one_minus_alpha * grad, grad, square[i] * k.alpha);
        square[i] = average;
        REAL delta = SQRT(moved[i] + k.eps) / SQRT(average + k.eps) * grad;
        moved[i] = FMA(k.one_minus_alpha * delta, delta, moved[i] * k.alpha);
        p[i] = FMA(k.negative_lr, delta, p[i]);
    }
}

/* Step the parameter, and keep its average in `mean`. */
static inline __attribute__((always_inline)) void SUFFIX(asgd_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p,
                                                                    const REAL *restrict g, REAL *restrict mean,
                                                                    int64_t n, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i];
        if (decay)
            grad = FMA(k.weight_decay, p[i], grad);
        REAL value = FMA(k.eta, grad, p[i] * k.keep);
        p[i] = value;
        mean[i] = k.mu == 1 ? value : mean[i] + (value - mean[i]) * k.mu;
    }
}

static inline __attribute__((always_inline)) void SUFFIX(rprop_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p,
                                                                     const REAL *restrict g, REAL *restrict before,
                                                                     REAL *restrict size, int64_t n)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i], agreement = grad * before[i];
        REAL factor = agreement > 0 ? k.eta_plus : agreement < 0 ? k.eta_minus : 1;
        REAL length = size[i] * factor;
        length = length < k.step_min ? k.step_min : length > k.step_max ? k.step_max : length;
        grad = factor == k.eta_minus ? 0 : grad;
        size[i] = length;
        before[i] = grad;
        p[i] = p[i] - (REAL)((grad > 0) - (grad < 0)) * length;
    }
}

/* Update n elements by the scalars of the step; t[0] is the parameter, t[1] the gradient, t[2..] the state. */
static void SUFFIX(update)(const struct SUFFIX(scalars) *s, enum ah_optim_kind kind, const struct ah_optim_options *o,
                         double step, REAL *const *t, int64_t n)
{
    bool decay = o->weight_decay != 0;
    switch (kind) {
    case AH_OPTIM_SGD:
        if (!t[2])
            decay ? SUFFIX(sgd_loop)(s, t[0], t[1], NULL, n, true, false, false)
                  : SUFFIX(sgd_loop)(s, t[0], t[1], NULL, n, false, false, false);
        else if (step == 1)
            SUFFIX(sgd_loop)(s, t[0], t[1], t[2], n, decay, true, o->nesterov);
        else
            o->nesterov ? SUFFIX(sgd_loop)(s, t[0], t[1], t[2], n, decay, false, true)
                        : SUFFIX(sgd_loop)(s, t[0], t[1], t[2], n, decay, false, false);
        break;
    case AH_OPTIM_RMSPROP:
        if (t[3] || t[4])
            SUFFIX(rmsprop_loop)(s, t[0], t[1], t[2], t[3], t[4], n, decay);
        else
            decay ? SUFFIX(rmsprop_loop)(s, t[0], t[1], t[2], NULL, NULL, n, true)
                  : SUFFIX(rmsprop_loop)(s, t[0], t[1], t[2], NULL, NULL, n, false);
        break;
    case AH_OPTIM_ADAGRAD:
        SUFFIX(adagrad_loop)(s, t[0], t[1], t[2], n, decay);
        break;
    case AH_OPTIM_ADADELTA:
        SUFFIX(adadelta_loop)(s, t[0], t[1], t[2], t[3], n, decay);
        break;
    case AH_OPTIM_ASGD:
        SUFFIX(asgd_loop)(s, t[0], t[1], t[2], n, decay);
        break;
    case AH_OPTIM_RPROP:
        SUFFIX(rprop_loop)(s, t[0], t[1], t[2], t[3], n);
        break;
    default:
        SUFFIX(update_adam)(s, kind, o, t, n);
    }
}
