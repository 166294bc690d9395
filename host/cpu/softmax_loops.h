/* Softmax over the middle of outer x length x inner for one element type: REAL, SUFFIX(name), EXP and LOG are set by
 * cpu/for_reals.h. With inner > 1 lanes of neighbouring columns go together. */

/* A NaN that the maximum passes over reaches the sum. */
static void SUFFIX(softmax_row)(const REAL *restrict x, REAL *restrict y, int64_t n)
{
    REAL m = SUFFIX(ah_row_max)(x, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        REAL e = EXP(x[i] - m);
        y[i] = e;
        sum += e;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void SUFFIX(softmax_same)(REAL *y, int64_t n)
{
    REAL m = SUFFIX(ah_row_max)(y, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        REAL e = EXP(y[i] - m);
        y[i] = e;
        sum += e;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void SUFFIX(log_softmax_row)(const REAL *restrict x, REAL *restrict y, int64_t n)
{
    REAL m = SUFFIX(ah_row_max)(x, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += EXP(x[i] - m);
    REAL log_sum = LOG(sum);
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
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        gx[i] = g[i] - EXP(y[i]) * sum;
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

static void SUFFIX(softmax_all)(const REAL *x, REAL *y, int64_t outer, int64_t n, int64_t inner, bool take_log)
{
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

static void SUFFIX(softmax_all_backward)(const REAL *g, const REAL *y, REAL *gx, int64_t outer, int64_t n,
                                         int64_t inner, bool take_log)
{
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
