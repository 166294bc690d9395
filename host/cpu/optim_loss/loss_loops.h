/* Losses of class labels for one element type: REAL, SUFFIX(name), EXP and LOG are set by cpu/loop/for_reals.h. Labels
 * are int64 and have been checked; totals are summed in order in double. */

/* The item `at`, a half unless it is of this type. */
static inline REAL SUFFIX(item_at)(const struct ah_items *x, int64_t at)
{
    if (x->dtype == (sizeof(REAL) == sizeof(float) ? AH_F32 : AH_F64))
        return ((const REAL *)x->data)[at];
    return (REAL)ah_half_to_f32(((const uint16_t *)x->data)[at], x->dtype);
}

/* -log p of one position: its label's, smoothed over all classes. `at`: its first class, `stride` items between. */
static REAL SUFFIX(one_nll)(const struct labels *l, const struct ah_items *x, int64_t at, int64_t stride,
                            const REAL *w, int64_t label)
{
    REAL loss = -SUFFIX(item_at)(x, at + label * stride) * (w ? w[label] : 1);
    if (l->smoothing == 0)
        return loss;
    REAL all = 0;
    for (int64_t c = 0; c < l->classes; c++)
        all -= SUFFIX(item_at)(x, at + c * stride) * (w ? w[c] : 1);
    return (REAL)(1 - l->smoothing) * loss + (REAL)(l->smoothing / (double)l->classes) * all;
}

static void SUFFIX(class_nll)(const struct labels *l, const struct ah_items *x, const REAL *w, REAL *out,
                              double *total)
{
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < l->count; i++) {
        int64_t label = l->label[i];
        bool counts = label != l->ignore;
        REAL loss = 0;
        if (counts) {
            loss = SUFFIX(one_nll)(l, x, i / l->inner * l->classes * l->inner + i % l->inner, l->inner, w, label);
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

/* Return the factor of the loss's gradient at position i. */
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
    REAL m = SUFFIX(ah_row_max)(x, n);
    return m + LOG(SUFFIX(ah_row_exp)(x, NULL, n, m));
}

/* `n` rows of scores from row i on: in place, or converted into the thread's `room`. */
static const REAL *SUFFIX(scores_rows)(const struct labels *l, const struct scores *x, int64_t i, int64_t n, REAL *room)
{
    const char *row = (const char *)x->data + (size_t)(i * l->classes) * x->size;
    if (!x->half)
        return (const REAL *)(const void *)row;
    ah_cast(n * l->classes, room, x->computed, 1, row, x->dtype, 1);
    return room;
}

/* The loss of a row whose label counts. -log p_c = log_sum - x_c. */
static REAL SUFFIX(row_loss)(const struct labels *l, const REAL *row, const REAL *w, int64_t label, REAL lse)
{
    REAL own = (lse - row[label]) * (w ? w[label] : 1);
    if (l->smoothing == 0)
        return own;
    REAL all = 0;
    for (int64_t c = 0; c < l->classes; c++)
        all += (lse - row[c]) * (w ? w[c] : 1);
    return (REAL)(1 - l->smoothing) * own + (REAL)(l->smoothing / (double)l->classes) * all;
}

/* Per row: log_sum and the loss, both 0 where the label is ignored. */
static void SUFFIX(cross_entropy)(const struct labels *l, const struct scores *x, const REAL *w, REAL *log_sum,
                                  REAL *loss)
{
#pragma omp parallel for schedule(static) if (ah_worth_threads(l->count * l->classes, AH_SHARE_HEAVY))
    for (int64_t first = 0; first < l->count; first += x->group) {
        int64_t n = l->count - first < x->group ? l->count - first : x->group;
        const REAL *rows = SUFFIX(scores_rows)(l, x, first, n, scores_room(l, x));
        for (int64_t i = first; i < first + n; i++) {
            const REAL *row = rows + (i - first) * l->classes;
            log_sum[i] = loss[i] = 0;
            if (l->label[i] == l->ignore)
                continue;
            log_sum[i] = SUFFIX(log_sum)(row, l->classes);
            loss[i] = SUFFIX(row_loss)(l, row, w, l->label[i], log_sum[i]);
        }
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

/* The inputs of the gradients of rows. */
struct SUFFIX(gradient) {
    const struct labels *labels;
    const struct scores *scores;
    const REAL *g, *log_sum, *w;
    REAL weights; /* the sum of w, when labels are smoothed */
};

/* Classes [begin, begin + n) of the gradient of row i, from scores x into `to`, which may be x. */
static void SUFFIX(gradient_part)(const struct SUFFIX(gradient) *of, int64_t i, int64_t begin, int64_t n, const REAL *x,
                                  REAL *to)
{
    const struct labels *l = of->labels;
    const REAL *w = of->w;
    int64_t label = l->label[i];
    if (label == l->ignore) {
        memset(to, 0, (size_t)n * sizeof *to);
        return;
    }
    REAL scale = SUFFIX(scale_at)(l, of->g, i), lse = of->log_sum[i];
    REAL own = (REAL)(1 - l->smoothing) * scale * (w ? w[label] : 1);
    REAL spread = (REAL)(l->smoothing / (double)l->classes) * scale;
    REAL factor = own + spread * of->weights;
#pragma omp simd
    for (int64_t c = 0; c < n; c++)
        to[c] = EXP(x[c] - lse) * factor;
    for (int64_t c = 0; l->smoothing > 0 && c < n; c++)
        to[c] -= spread * (w ? w[begin + c] : 1);
    if (label >= begin && label < begin + n)
        to[label - begin] -= own;
}

/* The gradient of the `n` rows from row i on, converted in parts that a cache holds: several short rows, or a part of
 * one long row. `out` may be the rows themselves. */
static void SUFFIX(gradient_of_halves)(const struct SUFFIX(gradient) *of, int64_t i, int64_t n, char *out)
{
    const struct scores *x = of->scores;
    int64_t classes = of->labels->classes, count = n * classes;
    const char *rows = (const char *)x->data + (size_t)(i * classes) * x->size;
    REAL part[SCORES_PART];
    for (int64_t begin = 0; begin < count; begin += SCORES_PART) {
        int64_t m = count - begin < SCORES_PART ? count - begin : SCORES_PART;
        size_t at = (size_t)begin * x->size;
        ah_cast(m, part, x->computed, 1, rows + at, x->dtype, 1);
        for (int64_t r = 0; r < n; r++) {
            REAL *row = part + r * classes;
            SUFFIX(gradient_part)(of, i + r, begin, n == 1 ? m : classes, row, row);
        }
        ah_cast(m, out + at, x->dtype, 1, part, x->computed, 1);
    }
}

static void SUFFIX(cross_entropy_backward)(const struct labels *l, const REAL *g, const struct scores *x,
                                           const REAL *log_sum, const REAL *w, void *gx)
{
    struct SUFFIX(gradient) of = {.labels = l, .scores = x, .g = g, .log_sum = log_sum, .w = w};
    size_t bytes = (size_t)l->classes * x->size;
    for (int64_t c = 0; l->smoothing > 0 && c < l->classes; c++)
        of.weights += w ? w[c] : 1;
#pragma omp parallel for schedule(static) if (ah_worth_threads(l->count * l->classes, AH_SHARE_HEAVY))
    for (int64_t i = 0; i < l->count; i += x->group) {
        char *out = (char *)gx + (size_t)i * bytes;
        int64_t n = l->count - i < x->group ? l->count - i : x->group;
        if (x->half)
            SUFFIX(gradient_of_halves)(&of, i, n, out);
        else
            SUFFIX(gradient_part)(&of, i, 0, l->classes, (const REAL *)x->data + i * l->classes, (REAL *)(void *)out);
    }
}
