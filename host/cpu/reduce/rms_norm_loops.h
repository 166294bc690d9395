/* RMS norm for one element type: REAL, SUFFIX(name) and SQRT are set by cpu/loop/for_reals.h. w is NULL where there is
 * no weight. */

static void SUFFIX(rms_rows)(int64_t rows, int64_t width, const REAL *x, const REAL *w, double eps, REAL *y,
                             REAL *inverse)
{
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * width, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < rows; i++) {
        const REAL *restrict from = x + i * width;
        REAL *restrict to = y + i * width;
        REAL squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j < width; j++)
            squares += from[j] * from[j];
        REAL inv = 1 / SQRT(squares / (REAL)width + (REAL)eps);
        inverse[i] = inv;
        if (w)
            for (int64_t j = 0; j < width; j++)
                to[j] = from[j] * inv * w[j];
        else
            for (int64_t j = 0; j < width; j++)
                to[j] = from[j] * inv;
    }
}

/* One row of gx = inverse (g w - n mean(g w n)), n = x inverse; to gw, unless it is NULL, g n is added. */
static void SUFFIX(rms_row_backward)(int64_t width, const REAL *restrict g, const REAL *restrict x, const REAL *w,
                                     REAL inv, REAL *restrict gx, REAL *restrict gw)
{
    REAL along = 0;
    if (w) {
#pragma omp simd reduction(+ : along)
        for (int64_t j = 0; j < width; j++)
            along += g[j] * w[j] * x[j];
        along *= inv * inv / (REAL)width;
        for (int64_t j = 0; j < width; j++)
            gx[j] = inv * (g[j] * w[j] - x[j] * along);
    } else {
#pragma omp simd reduction(+ : along)
        for (int64_t j = 0; j < width; j++)
            along += g[j] * x[j];
        along *= inv * inv / (REAL)width;
        for (int64_t j = 0; j < width; j++)
            gx[j] = inv * (g[j] - x[j] * along);
    }
    for (int64_t j = 0; gw && j < width; j++)
        gw[j] += g[j] * (x[j] * inv);
}

static int SUFFIX(rms_backward)(int64_t rows, int64_t width, const REAL *g, const REAL *x, const REAL *w,
                                const REAL *inverse, REAL *gx, REAL *gw)
{
    int64_t chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    struct ah_dense partial = {0};
    if (gw)
        AH_TRY(ah_dense_scratch(&partial, (size_t)(chunks * width) * sizeof(REAL)));
    REAL *sums = partial.block;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * width, AH_SHARE_MIDDLE))
    for (int64_t k = 0; k < chunks; k++) {
        int64_t end = (k + 1) * CHUNK_ROWS < rows ? (k + 1) * CHUNK_ROWS : rows;
        REAL *sum = gw ? sums + k * width : NULL;
        if (sum)
            memset(sum, 0, (size_t)width * sizeof *sum);
        for (int64_t i = k * CHUNK_ROWS; i < end; i++)
            SUFFIX(rms_row_backward)(width, g + i * width, x + i * width, w, inverse[i], gx + i * width, sum);
    }
    if (gw)
        memset(gw, 0, (size_t)width * sizeof *gw);
    for (int64_t k = 0; gw && k < chunks; k++)
        for (int64_t j = 0; j < width; j++)
            gw[j] += sums[k * width + j];
    ah_dense_close(&partial);
    return 0;
}
