/* Softmax over the middle of outer x length x inner for one element type: REAL, SUFFIX(name), EXP and LOG are set by
 * cpu/loop/for_reals.h. With inner > 1 lanes of neighbouring columns go together, and short rows as columns. */

/* The loops' vectors are of floats; the rest of a row is computed in one more vector, filled up. libm's exp is a call
 * for each item, so doubles have no rest. */
static inline int64_t SUFFIX(left_of_row)(int64_t n)
{
    return sizeof(REAL) == sizeof(float) ? n % VECTOR : 0;
}

/* y = exp(x) of the last `count` items. */
static void SUFFIX(exp_left)(const REAL *x, REAL *y, int64_t count)
{
    REAL e[VECTOR];
    for (int64_t j = 0; j < VECTOR; j++)
        e[j] = j < count ? x[j] : (REAL)-INFINITY;
#pragma omp simd
    for (int64_t j = 0; j < VECTOR; j++)
        e[j] = EXP(e[j]);
    memcpy(y, e, (size_t)count * sizeof *y);
}

/* A NaN that the maximum passes over reaches the sum. y may be x. */
static void SUFFIX(softmax_row)(const REAL *x, REAL *y, int64_t n)
{
    REAL sum = SUFFIX(ah_row_exp)(x, y, n, SUFFIX(ah_row_max)(x, n));
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void SUFFIX(log_softmax_row)(const REAL *restrict x, REAL *restrict y, int64_t n)
{
    REAL m = SUFFIX(ah_row_max)(x, n), log_sum = LOG(SUFFIX(ah_row_exp)(x, NULL, n, m));
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] - m - log_sum;
}

static void SUFFIX(softmax_row_backward)(const REAL *restrict g, const REAL *restrict y, REAL *restrict gx, int64_t n)
{
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += g[i] * y[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        gx[i] = y[i] * (g[i] - sum);
}

static void SUFFIX(log_softmax_row_backward)(const REAL *restrict g, const REAL *restrict y, REAL *restrict gx,
                                             int64_t n)
{
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += g[i];
    int64_t left = SUFFIX(left_of_row)(n), whole = n - left;
#pragma omp simd
    for (int64_t i = 0; i < whole; i++)
        gx[i] = g[i] - EXP(y[i]) * sum;
    REAL e[VECTOR];
    if (left)
        SUFFIX(exp_left)(y + whole, e, left);
    for (int64_t j = 0; j < left; j++)
        gx[whole + j] = g[whole + j] - e[j] * sum;
}

/* `width` (at most LANES) neighbouring columns, `stride` items between their rows. */
static void SUFFIX(softmax_lanes)(const REAL *restrict x, REAL *restrict y, int64_t n, int64_t stride, int64_t width,
                                  bool take_log)
{
    REAL m[LANES], sum[LANES];
    for (int64_t j = 0; j < width; j++) {
        m[j] = -INFINITY;
        sum[j] = 0;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            m[j] = x[i * stride + j] > m[j] ? x[i * stride + j] : m[j];
    if (take_log) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < width; j++)
                sum[j] += EXP(x[i * stride + j] - m[j]);
        for (int64_t j = 0; j < width; j++)
            sum[j] = LOG(sum[j]);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < width; j++)
                y[i * stride + j] = x[i * stride + j] - m[j] - sum[j];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < width; j++) {
            REAL e = EXP(x[i * stride + j] - m[j]);
            sum[j] += e;
            y[i * stride + j] = e;
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            y[i * stride + j] /= sum[j];
}

static void SUFFIX(softmax_lanes_backward)(const REAL *restrict g, const REAL *restrict y, REAL *restrict gx,
                                           int64_t n, int64_t stride, int64_t width, bool take_log)
{
    REAL sum[LANES];
    for (int64_t j = 0; j < width; j++)
        sum[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            sum[j] += take_log ? g[i * stride + j] : g[i * stride + j] * y[i * stride + j];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < width; j++) {
            int64_t at = i * stride + j;
            gx[at] = take_log ? g[at] - EXP(y[at]) * sum[j] : y[at] * (g[at] - sum[j]);
        }
    }
}

/* Up to PACK rows of fewer than SHORT items as columns, so that rows fill the vectors; the columns that are over repeat
 * the first row. */
static void SUFFIX(to_columns)(const REAL *restrict x, REAL *restrict columns, int64_t n, int64_t count)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < PACK; j++)
            columns[i * PACK + j] = x[(j < count ? j : 0) * n + i];
}

static void SUFFIX(from_columns)(const REAL *restrict columns, REAL *restrict y, int64_t n, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i++)
            y[j * n + i] = columns[i * PACK + j];
}

static void SUFFIX(softmax_short)(const REAL *x, REAL *y, int64_t n, int64_t count, bool take_log)
{
    REAL from[SHORT * PACK], to[SHORT * PACK];
    SUFFIX(to_columns)(x, from, n, count);
    SUFFIX(softmax_lanes)(from, to, n, PACK, PACK, take_log);
    SUFFIX(from_columns)(to, y, n, count);
}

static void SUFFIX(softmax_short_backward)(const REAL *g, const REAL *y, REAL *gx, int64_t n, int64_t count,
                                           bool take_log)
{
    REAL grad[SHORT * PACK], from[SHORT * PACK], to[SHORT * PACK];
    SUFFIX(to_columns)(g, grad, n, count);
    SUFFIX(to_columns)(y, from, n, count);
    SUFFIX(softmax_lanes_backward)(grad, from, to, n, PACK, PACK, take_log);
    SUFFIX(from_columns)(to, gx, n, count);
}

void SUFFIX(ah_softmax_all)(const REAL *x, REAL *y, int64_t outer, int64_t n, int64_t inner, bool take_log)
{
    if (inner == 1 && n < SHORT && outer >= VECTOR / 2 && sizeof(REAL) == sizeof(float)) {
#pragma omp parallel for schedule(static) if (ah_worth_threads(outer * n, AH_SHARE_HEAVY))
        for (int64_t k = 0; k < outer; k += PACK)
            SUFFIX(softmax_short)(x + k * n, y + k * n, n, outer - k < PACK ? outer - k : PACK, take_log);
        return;
    }
    int64_t blocks = (inner + LANES - 1) / LANES;
#pragma omp parallel for schedule(static) if (ah_worth_threads(outer * n * inner, AH_SHARE_HEAVY))
    for (int64_t k = 0; k < outer * blocks; k++) {
        int64_t first = k % blocks * LANES, at = k / blocks * n * inner + first;
        if (inner > 1)
            SUFFIX(softmax_lanes)(x + at, y + at, n, inner, inner - first < LANES ? inner - first : LANES, take_log);
        else if (take_log)
            SUFFIX(log_softmax_row)(x + at, y + at, n);
        else
            SUFFIX(softmax_row)(x + at, y + at, n);
    }
}

void SUFFIX(ah_softmax_all_backward)(const REAL *g, const REAL *y, REAL *gx, int64_t outer, int64_t n,
                                         int64_t inner, bool take_log)
{
    if (inner == 1 && n < SHORT && outer >= VECTOR / 2 && sizeof(REAL) == sizeof(float)) {
#pragma omp parallel for schedule(static) if (ah_worth_threads(outer * n, AH_SHARE_HEAVY))
        for (int64_t k = 0; k < outer; k += PACK)
            SUFFIX(softmax_short_backward)(g + k * n, y + k * n, gx + k * n, n, outer - k < PACK ? outer - k : PACK,
                                           take_log);
        return;
    }
    int64_t blocks = (inner + LANES - 1) / LANES;
#pragma omp parallel for schedule(static) if (ah_worth_threads(outer * n * inner, AH_SHARE_HEAVY))
    for (int64_t k = 0; k < outer * blocks; k++) {
        int64_t first = k % blocks * LANES, at = k / blocks * n * inner + first;
        if (inner > 1)
            SUFFIX(softmax_lanes_backward)(g + at, y + at, gx + at, n, inner,
                                           inner - first < LANES ? inner - first : LANES, take_log);
        else if (take_log)
            SUFFIX(log_softmax_row_backward)(g + at, y + at, gx + at, n);
        else
            SUFFIX(softmax_row_backward)(g + at, y + at, gx + at, n);
    }
}
