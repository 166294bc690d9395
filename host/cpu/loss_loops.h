/* Losses of class labels for one element type: REAL, SUFFIX(name), EXP and LOG are set by cpu/for_reals.h. Labels are
 * int64 and have been checked; totals are summed in order in double. */

/* -log p of one position: its label's, smoothed over all classes. `stride` items between classes. */
static REAL SUFFIX(one_nll)(const struct labels *l, const REAL *x, int64_t stride, const REAL *w, int64_t label)
{
    REAL loss = -x[label * stride] * (w ? w[label] : 1);
    if (l->smoothing == 0)
        return loss;
    REAL all = 0;
    for (int64_t c = 0; c < l->classes; c++)
        all -= x[c * stride] * (w ? w[c] : 1);
    return (REAL)(1 - l->smoothing) * loss + (REAL)(l->smoothing / (double)l->classes) * all;
}

static void SUFFIX(class_nll)(const struct labels *l, const REAL *x, const REAL *w, REAL *out, double *total)
{
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < l->count; i++) {
        int64_t label = l->label[i];
        bool counts = label != l->ignore;
        REAL loss = 0;
        if (counts) {
            loss = SUFFIX(one_nll)(l, x + i / l->inner * l->classes * l->inner + i % l->inner, l->inner, w, label);
            weights += w ? (double)w[label] : 1;
        }
        if (l->reduction == AH_REDUCTION_NONE)
            out[i] = loss;
        sum += (double)loss;
    }
    *total = weights;
    if (l->reduction != AH_REDUCTION_NONE)
        out[0] = (REAL)(l->reduction == AH_REDUCTION_MEAN ? sum / weights : sum);
}

/* What the loss's gradient is multiplied by at position i. */
static REAL SUFFIX(scale_at)(const struct labels *l, const REAL *g, int64_t i)
{
    if (l->reduction == AH_REDUCTION_NONE)
        return g[i];
    return l->reduction == AH_REDUCTION_MEAN ? g[0] / (REAL)l->total : g[0];
}

static void SUFFIX(class_nll_backward)(const struct labels *l, const REAL *g, const REAL *w, REAL *gx)
{
    memset(gx, 0, (size_t)(l->count * l->classes) * sizeof *gx);
    for (int64_t i = 0; i < l->count; i++) {
        int64_t label = l->label[i];
        if (label == l->ignore)
            continue;
        REAL *at = gx + i / l->inner * l->classes * l->inner + i % l->inner;
        REAL scale = SUFFIX(scale_at)(l, g, i);
        REAL spread = (REAL)(l->smoothing / (double)l->classes) * scale;
        for (int64_t c = 0; l->smoothing > 0 && c < l->classes; c++)
            at[c * l->inner] = -spread * (w ? w[c] : 1);
        at[label * l->inner] -= (REAL)(1 - l->smoothing) * scale * (w ? w[label] : 1);
    }
}

/* log(sum(exp(x))) of a row. */
static REAL SUFFIX(log_sum)(const REAL *restrict x, int64_t n)
{
    REAL m = SUFFIX(ah_row_max)(x, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; c++)
        sum += EXP(x[c] - m);
    return m + LOG(sum);
}

/* Per row: log_sum and the loss. -log p_c = log_sum - x_c. */
static void SUFFIX(cross_entropy)(const struct labels *l, const REAL *x, const REAL *w, REAL *log_sum, REAL *loss)
{
#pragma omp parallel for schedule(static) if (ah_worth_threads(l->count * l->classes, AH_SHARE_HEAVY))
    for (int64_t i = 0; i < l->count; i++) {
        const REAL *row = x + i * l->classes;
        int64_t label = l->label[i];
        REAL lse = SUFFIX(log_sum)(row, l->classes);
        log_sum[i] = lse;
        loss[i] = 0;
        if (label == l->ignore)
            continue;
        REAL own = (lse - row[label]) * (w ? w[label] : 1);
        if (l->smoothing > 0) {
            REAL all = 0;
            for (int64_t c = 0; c < l->classes; c++)
                all += (lse - row[c]) * (w ? w[c] : 1);
            own = (REAL)(1 - l->smoothing) * own + (REAL)(l->smoothing / (double)l->classes) * all;
        }
        loss[i] = own;
    }
}

static void SUFFIX(reduce_rows)(const struct labels *l, const REAL *loss, const REAL *w, REAL *out, double *total)
{
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < l->count; i++) {
        if (l->label[i] != l->ignore)
            weights += w ? (double)w[l->label[i]] : 1;
        sum += (double)loss[i];
    }
    *total = weights;
    if (l->reduction == AH_REDUCTION_NONE)
        memcpy(out, loss, (size_t)l->count * sizeof *out);
    else
        out[0] = (REAL)(l->reduction == AH_REDUCTION_MEAN ? sum / weights : sum);
}

static void SUFFIX(cross_entropy_backward)(const struct labels *l, const REAL *g, const REAL *x, const REAL *log_sum,
                                           const REAL *w, REAL *gx)
{
    REAL weights = 0;
    for (int64_t c = 0; l->smoothing > 0 && c < l->classes; c++)
        weights += w ? w[c] : 1;
#pragma omp parallel for schedule(static) if (ah_worth_threads(l->count * l->classes, AH_SHARE_HEAVY))
    for (int64_t i = 0; i < l->count; i++) {
        const REAL *row = x + i * l->classes; /* which `to` may be */
        REAL *to = gx + i * l->classes;
        int64_t label = l->label[i];
        if (label == l->ignore) {
            memset(to, 0, (size_t)l->classes * sizeof *to);
            continue;
        }
        REAL scale = SUFFIX(scale_at)(l, g, i), lse = log_sum[i];
        REAL own = (REAL)(1 - l->smoothing) * scale * (w ? w[label] : 1);
        REAL spread = (REAL)(l->smoothing / (double)l->classes) * scale;
        REAL factor = own + spread * weights;
#pragma omp simd
        for (int64_t c = 0; c < l->classes; c++)
            to[c] = EXP(row[c] - lse) * factor;
        for (int64_t c = 0; l->smoothing > 0 && c < l->classes; c++)
            to[c] -= spread * (w ? w[c] : 1);
        to[label] -= own;
    }
}
