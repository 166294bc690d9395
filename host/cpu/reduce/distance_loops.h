/* For distance.c and one element type: REAL and SUFFIX(name) are set by cpu/loop/for_reals.h. */

#define SIZE (d < 0 ? -d : d)
#define EACH(step)                                      \
    _Pragma("omp simd") for (int64_t j = 0; j < n; j++) \
    {                                                   \
        REAL d = v - other[j];                          \
        sum[j] = (step);                                \
    }                                                   \
    break

/* Add the terms of one element of a row, v, to the distances from n others. */
static inline void SUFFIX(add_terms)(const struct pairs *pairs, REAL v, const REAL *restrict other, int64_t n,
                                     REAL *restrict sum)
{
    switch (pairs->norm) {
    case COUNT: EACH(sum[j] + (d != 0));
    case ABSOLUTE: EACH(sum[j] + SIZE);
    case SQUARE: break; /* add_squares */
    case LARGEST: EACH(SIZE > sum[j] || d != d ? SIZE : sum[j]);
    case POWER: EACH(sum[j] + (REAL)pow((double)SIZE, pairs->p));
    }
}
#undef SIZE
#undef EACH

/* The sums of squares of `n` distances from a row, up to BLOCK: in registers while the terms are added up. */
static void SUFFIX(add_squares)(const struct pairs *pairs, const REAL *row, const REAL *turned, int64_t n,
                                double *restrict total)
{
    enum { LANES = sizeof(SUFFIX(ah_lanes)) / sizeof(REAL), VECTORS = 4, STEP = LANES * VECTORS };
    for (int64_t from = 0; from < pairs->width; from += SUMMED) {
        int64_t end = from + SUMMED < pairs->width ? from + SUMMED : pairs->width;
        for (int64_t j = 0; j < n; j += STEP) {
            SUFFIX(ah_lanes) sum[VECTORS] = {{0}};
            for (int64_t k = from; k < end; k++) {
                const REAL *other = turned + k * pairs->stride + j;
                SUFFIX(ah_lanes) v = SUFFIX(ah_spread)(row[k]);
                for (int q = 0; q < VECTORS; q++) {
                    SUFFIX(ah_lanes) d = v - *(const SUFFIX(ah_lanes_at) *)(other + q * LANES);
                    sum[q] += d * d;
                }
            }
            for (int q = 0; q < VECTORS; q++)
                for (int i = 0; i < LANES; i++)
                    total[j + q * LANES + i] += (double)sum[q][i];
        }
    }
}

/* The distances from row i to the `n` rows from `first` on. */
static void SUFFIX(from_row)(const struct pairs *pairs, const REAL *row, const REAL *turned, int64_t first, int64_t n,
                             REAL *restrict out)
{
    REAL sum[BLOCK];
    double total[BLOCK];
    bool adds = pairs->norm != LARGEST;
    memset(total, 0, sizeof total);
    if (pairs->norm == SQUARE) {
        SUFFIX(add_squares)(pairs, row, turned + first, n, total);
        for (int64_t j = 0; j < n; j++)
            out[j] = (REAL)sqrt(total[j]);
        return;
    }
    memset(sum, 0, sizeof sum);
    for (int64_t k = 0; k < pairs->width; k++) {
        SUFFIX(add_terms)(pairs, row[k], turned + k * pairs->stride + first, n, sum);
        if (!adds || ((k + 1) % SUMMED != 0 && k + 1 < pairs->width))
            continue;
        for (int64_t j = 0; j < n; j++) {
            total[j] += (double)sum[j];
            sum[j] = 0;
        }
    }
    if (pairs->norm == POWER)
        for (int64_t j = 0; j < n; j++)
            out[j] = (REAL)pow(total[j], 1 / pairs->p);
    else
        for (int64_t j = 0; j < n; j++)
            out[j] = adds ? (REAL)total[j] : sum[j];
}

static void SUFFIX(distances)(const struct pairs *pairs, const REAL *x, REAL *turned, REAL *out)
{
    int64_t n = pairs->n, width = pairs->width;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++)
            turned[k * pairs->stride + i] = x[i * width + k];
    for (int64_t k = 0; k < width; k++) /* read by whole vectors */
        memset(turned + k * pairs->stride + n, 0, (size_t)(pairs->stride - n) * sizeof *turned);
#pragma omp parallel for schedule(static, 4) if (ah_worth_threads(n * n / 2 * width, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j += BLOCK)
            SUFFIX(from_row)(pairs, x + i * width, turned, j, n - j < BLOCK ? n - j : BLOCK,
                             out + pairs_before(n, i) + j);
}

/* Add the slopes of one pair's distance d for `n` elements of the first row, times g. */
static inline void SUFFIX(add_slopes)(const struct pairs *pairs, const REAL *restrict a, const REAL *restrict b,
                                      int64_t n, double g, double d, double *restrict sum)
{
    for (int64_t k = 0; k < n; k++) {
        double by = (double)a[k] - (double)b[k], sign = by > 0 ? 1 : by < 0 ? -1 : by;
        switch (pairs->norm) {
        case COUNT: break;
        case ABSOLUTE: sum[k] += g * sign; break;
        case SQUARE: sum[k] += g / d * by; break;
        case LARGEST: sum[k] += (REAL)fabs(by) == (REAL)d ? g * sign : 0; break;
        case POWER: sum[k] += by == 0 ? 0 : g * sign * pow(fabs(by) / d, pairs->p - 1); break;
        }
    }
}

/* Rows that coincide have no slope. */
static void SUFFIX(gradients)(const struct pairs *pairs, const REAL *x, const REAL *g, const REAL *d, REAL *out)
{
    int64_t n = pairs->n, width = pairs->width;
#pragma omp parallel for schedule(static) if (ah_worth_threads(n * n * width, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < n; i++) {
        for (int64_t first = 0; first < width; first += LINE) {
            int64_t count = width - first < LINE ? width - first : LINE;
            double sum[LINE] = {0};
            for (int64_t j = 0; j < n; j++) {
                int64_t at = i < j ? pairs_before(n, i) + j : pairs_before(n, j) + i;
                if (i != j && d[at] != 0)
                    SUFFIX(add_slopes)(pairs, x + i * width + first, x + j * width + first, count, (double)g[at],
                                       (double)d[at], sum);
            }
            for (int64_t k = 0; k < count; k++)
                out[i * width + first + k] = (REAL)sum[k];
        }
    }
}
