/* The loops of host/cpu/optim.c for one type, by cpu/for_reals.h.
 *
 * Every loop is the chain of PyTorch's tensor operations for one element. PyTorch's add with alpha and its addcmul
 * are one fused multiply-add each (its vector code is compiled with contraction), hence FMA here. Scalars are rounded
 * to REAL where PyTorch rounds them. `always_inline` with constant flags makes one loop per combination. */

struct SUFFIX(scalars) {
    REAL sign; /* -1 to maximize */
    REAL lr, negative_lr, weight_decay, eps;
    REAL beta1, one_minus_beta1, beta2, one_minus_beta2;
    REAL keep;               /* AdamW: 1 - lr * weight_decay */
    REAL negative_step_size; /* Adam: -lr / (1 - beta1^t); Adagrad: -lr / (1 + (t - 1) lr_decay) */
    REAL correction2_sqrt;   /* Adam: sqrt(1 - beta2^t) */
    REAL momentum, one_minus_dampening;
    REAL alpha, one_minus_alpha;
};

static void SUFFIX(set_scalars)(struct SUFFIX(scalars) *s, enum ah_optim_kind kind, const struct ah_optim_options *o,
                              double step)
{
    double step_size = o->lr;
    if (kind == AH_OPTIM_ADAM || kind == AH_OPTIM_ADAMW)
        step_size = o->lr / (1 - pow(o->beta1, step));
    else if (kind == AH_OPTIM_ADAGRAD)
        step_size = o->lr / (1 + (step - 1) * o->lr_decay);
    double alpha = kind == AH_OPTIM_ADADELTA ? o->rho : o->alpha;
    *s = (struct SUFFIX(scalars)){
        .sign = o->maximize ? -1 : 1,
        .lr = (REAL)o->lr,
        .negative_lr = (REAL)-o->lr,
        .weight_decay = (REAL)o->weight_decay,
        .eps = (REAL)o->eps,
        .beta1 = (REAL)o->beta1,
        .one_minus_beta1 = (REAL)(1 - o->beta1),
        .beta2 = (REAL)o->beta2,
        .one_minus_beta2 = (REAL)(1 - o->beta2),
        .keep = (REAL)(1 - o->lr * o->weight_decay),
        .negative_step_size = (REAL)-step_size,
        .correction2_sqrt = (REAL)sqrt(1 - pow(o->beta2, step)),
        .momentum = (REAL)o->momentum,
        .one_minus_dampening = (REAL)(1 - o->dampening),
        .alpha = (REAL)alpha,
        .one_minus_alpha = (REAL)(1 - alpha),
    };
}

static inline __attribute__((always_inline)) void SUFFIX(adam_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p,
                                                                    const REAL *restrict g, REAL *restrict m,
                                                                    REAL *restrict v, REAL *restrict vmax, int64_t n,
                                                                    const bool decoupled, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i], value = p[i];
        if (decoupled)
            value = value * k.keep;
        else if (decay)
            grad = FMA(k.weight_decay, value, grad);
        REAL first = FMA(k.one_minus_beta1, grad, m[i] * k.beta1);
        REAL second = FMA(k.one_minus_beta2 * grad, grad, v[i] * k.beta2);
        m[i] = first;
        v[i] = second;
        if (vmax) {
            second = second > vmax[i] || second != second ? second : vmax[i];
            vmax[i] = second;
        }
        REAL denominator = SQRT(second) / k.correction2_sqrt + k.eps;
        p[i] = value + k.negative_step_size * first / denominator;
    }
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
            REAL centre = FMA(k.one_minus_alpha, grad, mean[i] * k.alpha);
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

/* Update n elements; t[0] is the parameter, t[1] the gradient, t[2..] the state. */
static void SUFFIX(update)(enum ah_optim_kind kind, const struct ah_optim_options *o, double step, REAL *const *t,
                         int64_t n)
{
    struct SUFFIX(scalars) s;
    SUFFIX(set_scalars)(&s, kind, o, step);
    bool decay = o->weight_decay != 0;
    switch (kind) {
    case AH_OPTIM_SGD:
        if (!t[2])
            decay ? SUFFIX(sgd_loop)(&s, t[0], t[1], NULL, n, true, false, false)
                  : SUFFIX(sgd_loop)(&s, t[0], t[1], NULL, n, false, false, false);
        else if (step == 1)
            SUFFIX(sgd_loop)(&s, t[0], t[1], t[2], n, decay, true, o->nesterov);
        else
            o->nesterov ? SUFFIX(sgd_loop)(&s, t[0], t[1], t[2], n, decay, false, true)
                        : SUFFIX(sgd_loop)(&s, t[0], t[1], t[2], n, decay, false, false);
        break;
    case AH_OPTIM_ADAM:
        if (t[4])
            SUFFIX(adam_loop)(&s, t[0], t[1], t[2], t[3], t[4], n, false, decay);
        else
            decay ? SUFFIX(adam_loop)(&s, t[0], t[1], t[2], t[3], NULL, n, false, true)
                  : SUFFIX(adam_loop)(&s, t[0], t[1], t[2], t[3], NULL, n, false, false);
        break;
    case AH_OPTIM_ADAMW:
        if (t[4])
            SUFFIX(adam_loop)(&s, t[0], t[1], t[2], t[3], t[4], n, true, false);
        else
            SUFFIX(adam_loop)(&s, t[0], t[1], t[2], t[3], NULL, n, true, false);
        break;
    case AH_OPTIM_RMSPROP:
        if (t[3] || t[4])
            SUFFIX(rmsprop_loop)(&s, t[0], t[1], t[2], t[3], t[4], n, decay);
        else
            decay ? SUFFIX(rmsprop_loop)(&s, t[0], t[1], t[2], NULL, NULL, n, true)
                  : SUFFIX(rmsprop_loop)(&s, t[0], t[1], t[2], NULL, NULL, n, false);
        break;
    case AH_OPTIM_ADAGRAD:
        SUFFIX(adagrad_loop)(&s, t[0], t[1], t[2], n, decay);
        break;
    case AH_OPTIM_ADADELTA:
        SUFFIX(adadelta_loop)(&s, t[0], t[1], t[2], t[3], n, decay);
        break;
    case AH_OPTIM_KINDS:
        break;
    }
}
