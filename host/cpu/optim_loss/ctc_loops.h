/* The forward-backward algorithm for one element type: REAL, SUFFIX(name), EXP and LOG are set by cpu/loop/for_reals.h.
 * alpha[t][s] is the log probability of all ways to have read places 0..s by step t, beta[t][s] of all ways to read
 * the rest from there; both include step t. */

/* log(exp(a) + exp(b)); relative to the larger one, so that nothing overflows or is lost. */
static inline REAL SUFFIX(log_add)(REAL a, REAL b)
{
    REAL most = a > b ? a : b, least = a > b ? b : a;
    return isinf(least) && least < 0 ? most : most + LOG(1 + EXP(least - most));
}

static inline REAL SUFFIX(log_sum)(REAL a, REAL b, REAL c)
{
    if (isinf(c) && c < 0)
        return SUFFIX(log_add)(a, b);
    REAL most = a > b ? a : b, least = a > b ? b : a;
    if (c > most) {
        REAL held = most;
        most = c;
        c = held;
    }
    return most + LOG(1 + EXP(least - most) + EXP(c - most));
}

static REAL SUFFIX(ctc_one)(const struct ctc *p, int64_t n, const REAL *x, REAL *alpha)
{
    int64_t length = p->target_length[n], places = 2 * length + 1, width = 2 * p->longest + 1;
    int64_t steps = p->input_length[n], stride = p->batch * p->classes;
    x += n * p->classes;
    if (steps == 0)
        return length == 0 ? 0 : (REAL)INFINITY;
    for (int64_t s = 0; s < places; s++)
        alpha[s] = s < 2 ? x[label_at(p, n, s)] : (REAL)-INFINITY;
    for (int64_t t = 1; t < steps; t++) {
        const REAL *before = alpha + (t - 1) * width;
        for (int64_t s = 0; s < places; s++) {
            int64_t label = label_at(p, n, s);
            REAL one = s > 0 ? before[s - 1] : (REAL)-INFINITY;
            REAL two = s > 1 && label_at(p, n, s - 2) != label ? before[s - 2] : (REAL)-INFINITY;
            alpha[t * width + s] = SUFFIX(log_sum)(before[s], one, two) + x[t * stride + label];
        }
    }
    const REAL *last = alpha + (steps - 1) * width;
    return -SUFFIX(log_add)(last[places - 1], places > 1 ? last[places - 2] : (REAL)-INFINITY);
}

static void SUFFIX(ctc_forward)(const struct ctc *p, const REAL *x, REAL *alpha, REAL *loss)
{
    int64_t width = 2 * p->longest + 1;
#pragma omp parallel for schedule(static) if (ah_worth_threads(p->batch * p->steps * width, AH_SHARE_HEAVY))
    for (int64_t n = 0; n < p->batch; n++)
        loss[n] = SUFFIX(ctc_one)(p, n, x, alpha + n * p->steps * width);
}

/* Into gx, for sequence n, how probable each class is at each step, given the target: the sums over the class's places
 * of exp(alpha + beta + loss - x). `beta` has two rows. */
static void SUFFIX(ctc_classes)(const struct ctc *p, int64_t n, const REAL *x, const REAL *alpha, REAL loss, REAL *beta,
                                REAL *gx)
{
    int64_t places = 2 * p->target_length[n] + 1, width = 2 * p->longest + 1, stride = p->batch * p->classes;
    for (int64_t t = p->input_length[n] - 1; t >= 0; t--) {
        REAL *now = beta + t % 2 * width, *sums = gx + t * stride;
        const REAL *next = beta + (t + 1) % 2 * width;
        bool last = t == p->input_length[n] - 1;
        for (int64_t k = 0; k < p->classes; k++)
            sums[k] = isinf(loss) ? (REAL)NAN : 0; /* without any alignment there is no gradient */
        for (int64_t s = places - 1; s >= 0; s--) {
            int64_t label = label_at(p, n, s);
            REAL rest = s >= places - 2 ? 0 : (REAL)-INFINITY;
            if (!last) {
                REAL one = s + 1 < places ? next[s + 1] : (REAL)-INFINITY;
                REAL two = s + 2 < places && label_at(p, n, s + 2) != label ? next[s + 2] : (REAL)-INFINITY;
                rest = SUFFIX(log_sum)(next[s], one, two);
            }
            now[s] = rest + x[t * stride + label];
            REAL through = alpha[t * width + s] + rest;
            if (!(isinf(through) && through < 0))
                sums[label] += EXP(through + loss);
        }
    }
}

/* d loss / d log_probs as PyTorch has it: exp(x) less the class's probability given the target, which is that of x =
 * log_softmax(...) after its own rule; 0 beyond a sequence's end. */
static void SUFFIX(ctc_backward)(const struct ctc *p, const REAL *x, const REAL *alpha, const REAL *loss, const REAL *g,
                                 bool zero_infinity, REAL *beta, REAL *gx)
{
    int64_t width = 2 * p->longest + 1, stride = p->batch * p->classes;
#pragma omp parallel for schedule(static) if (ah_worth_threads(p->batch * p->steps * width, AH_SHARE_HEAVY))
    for (int64_t n = 0; n < p->batch; n++) {
        bool none = zero_infinity && isinf(loss[n]);
        const REAL *xn = x + n * p->classes;
        REAL *to = gx + n * p->classes;
        if (!none)
            SUFFIX(ctc_classes)(p, n, xn, alpha + n * p->steps * width, loss[n], beta + n * 2 * width, to);
        for (int64_t t = 0; t < p->steps; t++) {
            bool inside = !none && t < p->input_length[n];
            for (int64_t k = 0; k < p->classes; k++) {
                REAL *at = &to[t * stride + k];
                *at = inside ? (EXP(xn[t * stride + k]) - *at) * g[n] : 0;
            }
        }
    }
}
