/* The loops of Adam, its kin and Lion for one type, a part of cpu/optim_loss/optim_loops.h. */

#define LOOP static inline __attribute__((always_inline)) void

/* The running mean: PyTorch's lerp, which counts from the nearer end. */
static inline __attribute__((always_inline)) REAL SUFFIX(mean)(const struct SUFFIX(scalars) *k, REAL old, REAL new)
{
    return k->near_old ? FMA(k->lerp, new - old, old) : FMA(k->lerp, new - old, new);
}

/* Apply the decay and update the running means of the gradient and its square. Returns the gradient. */
static inline __attribute__((always_inline)) REAL SUFFIX(take)(const struct SUFFIX(scalars) *k, REAL grad, REAL *value,
                                                               REAL *m, REAL *v, const bool decoupled,
                                                               const bool decay)
{
    grad = k->sign * grad;
    if (decoupled)
        *value = *value * k->keep;
    else if (decay)
        grad = FMA(k->weight_decay, *value, grad);
    *m = SUFFIX(mean)(k, *m, grad);
    *v = FMA(k->one_minus_beta2 * grad, grad, *v * k->beta2);
    return grad;
}

LOOP SUFFIX(adam_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p, const REAL *restrict g, REAL *restrict m,
                       REAL *restrict v, REAL *restrict vmax, int64_t n, const bool decoupled, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL value = p[i];
        SUFFIX(take)(&k, g[i], &value, &m[i], &v[i], decoupled, decay);
        REAL second = v[i];
        if (vmax) {
            second = second > vmax[i] || second != second ? second : vmax[i];
            vmax[i] = second;
        }
        REAL denominator = SQRT(second) / k.correction2_sqrt + k.eps;
        p[i] = value + k.negative_step_size * m[i] / denominator;
    }
}

LOOP SUFFIX(nadam_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p, const REAL *restrict g, REAL *restrict m,
                        REAL *restrict v, int64_t n, const bool decoupled, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL value = p[i], grad = SUFFIX(take)(&k, g[i], &value, &m[i], &v[i], decoupled, decay);
        REAL denominator = SQRT(v[i] / k.correction2) + k.eps;
        value = value + k.first_weight * grad / denominator;
        p[i] = value + k.second_weight * m[i] / denominator;
    }
}

LOOP SUFFIX(radam_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p, const REAL *restrict g, REAL *restrict m,
                        REAL *restrict v, int64_t n, const bool rectified, const bool decoupled, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL value = p[i];
        SUFFIX(take)(&k, g[i], &value, &m[i], &v[i], decoupled, decay);
        REAL update = m[i] / k.first_weight * k.lr;
        if (rectified)
            update = update * (1 / (SQRT(v[i]) + k.eps) * k.correction2_sqrt) * k.second_weight;
        p[i] = value - update;
    }
}

LOOP SUFFIX(adamax_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p, const REAL *restrict g, REAL *restrict m,
                         REAL *restrict u, int64_t n, const bool decay)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i];
        if (decay)
            grad = FMA(k.weight_decay, p[i], grad);
        REAL first = SUFFIX(mean)(&k, m[i], grad);
        REAL old = u[i] * k.beta2, size = (grad < 0 ? -grad : grad) + k.eps;
        REAL largest = size > old || size != size ? size : old;
        m[i] = first;
        u[i] = largest;
        p[i] = p[i] + k.negative_step_size * first / largest;
    }
}

LOOP SUFFIX(lion_loop)(const struct SUFFIX(scalars) *s, REAL *restrict p, const REAL *restrict g, REAL *restrict m,
                       int64_t n)
{
    const struct SUFFIX(scalars) k = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL grad = k.sign * g[i];
        REAL update = FMA(k.one_minus_beta1, grad, m[i] * k.beta1);
        m[i] = FMA(k.one_minus_beta2, grad, m[i] * k.beta2);
        p[i] = p[i] * k.keep + k.negative_lr * (REAL)((update > 0) - (update < 0));
    }
}

/* A loop with the way of decay as constants. */
#define CALL_LOOP(loop, ...) \
    (decoupled ? SUFFIX(loop)(__VA_ARGS__, true, false) \
     : decay   ? SUFFIX(loop)(__VA_ARGS__, false, true) \
               : SUFFIX(loop)(__VA_ARGS__, false, false))

/* Update n elements by one of these kinds, as `update` does. */
static void SUFFIX(update_adam)(const struct SUFFIX(scalars) *s, enum ah_optim_kind kind,
                                const struct ah_optim_options *o, REAL *const *t, int64_t n)
{
    bool decay = o->weight_decay != 0, decoupled = decay && o->decoupled_weight_decay;
    switch (kind) {
    case AH_OPTIM_ADAMW:
    case AH_OPTIM_ADAM:
        decoupled = decoupled || kind == AH_OPTIM_ADAMW;
        if (t[4])
            SUFFIX(adam_loop)(s, t[0], t[1], t[2], t[3], t[4], n, decoupled, decay);
        else
            CALL_LOOP(adam_loop, s, t[0], t[1], t[2], t[3], NULL, n);
        break;
    case AH_OPTIM_NADAM:
        CALL_LOOP(nadam_loop, s, t[0], t[1], t[2], t[3], n);
        break;
    case AH_OPTIM_RADAM:
        s->rectified ? CALL_LOOP(radam_loop, s, t[0], t[1], t[2], t[3], n, true)
                     : CALL_LOOP(radam_loop, s, t[0], t[1], t[2], t[3], n, false);
        break;
    case AH_OPTIM_ADAMAX:
        SUFFIX(adamax_loop)(s, t[0], t[1], t[2], t[3], n, decay);
        break;
    case AH_OPTIM_LION:
        SUFFIX(lion_loop)(s, t[0], t[1], t[2], n);
        break;
    default:
        break;
    }
}

#undef CALL_LOOP
#undef LOOP
