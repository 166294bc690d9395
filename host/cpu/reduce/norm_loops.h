/* Batch and layer normalisation for one element type: REAL, SUFFIX(name) and SQRT are set by cpu/loop/for_reals.h. Sums
 * run in fixed chunks, whatever the number of threads. */

/* Batch norm: the factors of each channel, y = scale x + shift. */
void SUFFIX(ah_norm_affine_factors)(int64_t c, const REAL *mean, const REAL *inverse, const REAL *w, const REAL *bias,
                                    REAL *scale, REAL *shift)
{
    for (int64_t k = 0; k < c; k++) {
        scale[k] = inverse[k] * (w ? w[k] : 1);
        shift[k] = (bias ? bias[k] : 0) - mean[k] * scale[k];
    }
}

/* The gradients of weight and bias, and the factors of gx = ca (g - cb - (x - mean) cc): with statistics of the
 * batch
 *     gx = w inverse (g - mean(g) - (x - mean) inverse^2 mean(g (x - mean))). */
void SUFFIX(ah_norm_backward_factors)(const struct ah_batch *b, const REAL *inverse, const REAL *w,
                                      const REAL *sum_g, const REAL *sum_gx, bool training, REAL *gw, REAL *gb,
                                      REAL *ca, REAL *cb, REAL *cc)
{
    REAL count = (REAL)(b->n * b->pixels);
    for (int64_t k = 0; k < b->c; k++) {
        gw[k] = sum_gx[k] * inverse[k];
        gb[k] = sum_g[k];
        ca[k] = inverse[k] * (w ? w[k] : 1);
        cb[k] = training ? sum_g[k] / count : 0;
        cc[k] = training ? inverse[k] * inverse[k] * sum_gx[k] / count : 0;
    }
}

/* Layer norm: rows x width. */

/* The sum over a row of an expression of x; long rows in four streams, which hide the latency of the additions. */
#define ROW_SUM(name, expr)                                                                      \
    static inline REAL SUFFIX(name)(int64_t n, const REAL *row, REAL m)                          \
    {                                                                                            \
        REAL sum = 0, s1 = 0, s2 = 0, s3 = 0;                                                    \
        int64_t quarter = n >= LONG_ROW ? n / 4 : 0;                                             \
        const REAL *row1 = row + quarter, *row2 = row1 + quarter, *row3 = row2 + quarter;        \
        _Pragma("omp simd reduction(+ : sum, s1, s2, s3)") for (int64_t j = 0; j < quarter; j++) \
        {                                                                                        \
            REAL x = row[j];                                                                     \
            sum += (expr);                                                                       \
            x = row1[j];                                                                         \
            s1 += (expr);                                                                        \
            x = row2[j];                                                                         \
            s2 += (expr);                                                                        \
            x = row3[j];                                                                         \
            s3 += (expr);                                                                        \
        }                                                                                        \
        sum = (sum + s1) + (s2 + s3);                                                            \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t j = 4 * quarter; j < n; j++)         \
        {                                                                                        \
            REAL x = row[j];                                                                     \
            sum += (expr);                                                                       \
        }                                                                                        \
        return sum;                                                                              \
    }
ROW_SUM(row_sum, x - m)
ROW_SUM(row_squares, (x - m) * (x - m))
#undef ROW_SUM

static void SUFFIX(layer_row)(const struct ah_layer *l, const REAL *restrict from, REAL *restrict to, REAL *mean,
                              REAL *inverse)
{
    const REAL *w = l->w, *bias = l->bias;
    int64_t width = l->width;
    REAL m = SUFFIX(row_sum)(width, from, 0) / (REAL)width, squares = SUFFIX(row_squares)(width, from, m);
    REAL inv = 1 / SQRT(squares / (REAL)width + (REAL)l->eps);
    *mean = m;
    *inverse = inv;
    if (w && bias)
        for (int64_t j = 0; j < width; j++)
            to[j] = (from[j] - m) * inv * w[j] + bias[j];
    else if (!w && !bias)
        for (int64_t j = 0; j < width; j++)
            to[j] = (from[j] - m) * inv + 0;
    else
        for (int64_t j = 0; j < width; j++)
            to[j] = (from[j] - m) * inv * (w ? w[j] : 1) + (bias ? bias[j] : 0);
}

void SUFFIX(ah_layer_forward)(const struct ah_layer *l)
{
    int64_t width = l->width;
#pragma omp parallel for schedule(static) if (ah_worth_threads(l->rows * l->width, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < l->rows; i++) {
        REAL *room = (REAL *)l->room + ah_thread_index() * AH_LAYER_ROOM * width;
        const REAL *x = SUFFIX(ah_row_in)(&l->x, i * width, width, room);
        if (l->other.data) {
            const REAL *y = SUFFIX(ah_row_in)(&l->other, i * width, width, room + width);
            REAL *sum = SUFFIX(ah_row_room)(&l->sum, i * width, room);
            for (int64_t j = 0; j < width; j++)
                sum[j] = x[j] + y[j];
            SUFFIX(ah_row_out)(&l->sum, i * width, width, sum);
            x = SUFFIX(ah_row_in)(&l->sum, i * width, width, room); /* rounded */
        }
        REAL *to = SUFFIX(ah_row_room)(&l->out, i * width, room + width);
        SUFFIX(layer_row)(l, x, to, (REAL *)l->mean + i, (REAL *)l->inverse + i);
        SUFFIX(ah_row_out)(&l->out, i * width, width, to);
    }
}

/* gx = inverse (gn - mean(gn) - n mean(gn n)) with n the normalised row and gn = g w. */
static void SUFFIX(layer_row_backward)(int64_t width, const REAL *restrict gi, const REAL *restrict xi,
                                       const REAL *restrict w, REAL m, REAL inv, REAL *restrict to)
{
    REAL sum = 0, along = 0;
    if (w) {
#pragma omp simd reduction(+ : sum, along)
        for (int64_t j = 0; j < width; j++) {
            REAL gn = gi[j] * w[j];
            sum += gn;
            along += gn * ((xi[j] - m) * inv);
        }
        sum /= (REAL)width;
        along /= (REAL)width;
        for (int64_t j = 0; j < width; j++)
            to[j] = inv * (gi[j] * w[j] - sum - (xi[j] - m) * inv * along);
    } else {
#pragma omp simd reduction(+ : sum, along)
        for (int64_t j = 0; j < width; j++) {
            sum += gi[j];
            along += gi[j] * ((xi[j] - m) * inv);
        }
        sum /= (REAL)width;
        along /= (REAL)width;
        for (int64_t j = 0; j < width; j++)
            to[j] = inv * (gi[j] - sum - (xi[j] - m) * inv * along);
    }
}

/* Rows from `from` on; their sums for the gradients of weight and bias, unless these are NULL. */
static void SUFFIX(layer_chunk)(const struct ah_layer *l, int64_t from, int64_t rows, REAL *restrict gw,
                                REAL *restrict gb)
{
    int64_t width = l->width;
    REAL *room = (REAL *)l->room + ah_thread_index() * AH_LAYER_ROOM * width;
    for (int64_t j = 0; gw && j < width; j++)
        gw[j] = gb[j] = 0;
    for (int64_t i = from; i < from + rows; i++) {
        REAL m = ((const REAL *)l->mean)[i], inv = ((const REAL *)l->inverse)[i];
        const REAL *restrict g = SUFFIX(ah_row_in)(&l->grad, i * width, width, room);
        const REAL *restrict x = SUFFIX(ah_row_in)(&l->x, i * width, width, room + width);
        REAL *gx = SUFFIX(ah_row_room)(&l->out, i * width, room + 2 * width);
        SUFFIX(layer_row_backward)(width, g, x, l->w, m, inv, gx);
        if (l->more.data) {
            const REAL *more = SUFFIX(ah_row_in)(&l->more, i * width, width, room + 3 * width);
            for (int64_t j = 0; j < width; j++)
                gx[j] += more[j];
        }
        SUFFIX(ah_row_out)(&l->out, i * width, width, gx);
        if (l->also.data)
            SUFFIX(ah_row_out)(&l->also, i * width, width, gx);
        for (int64_t j = 0; gw && j < width; j++) {
            gw[j] += g[j] * ((x[j] - m) * inv);
            gb[j] += g[j];
        }
    }
}

int SUFFIX(ah_layer_backward)(const struct ah_layer *l, REAL *gw, REAL *gb)
{
    int64_t chunks = (l->rows + CHUNK_ROWS - 1) / CHUNK_ROWS, width = l->width;
    struct ah_dense partial = {0};
    int status = gw ? ah_dense_scratch(&partial, (size_t)(2 * chunks * width) * sizeof(REAL)) : 0;
    if (status < 0)
        return status;
    REAL *pw = partial.block, *pb = pw ? pw + chunks * width : NULL;
#pragma omp parallel for schedule(static) if (ah_worth_threads(l->rows * l->width, AH_SHARE_MIDDLE))
    for (int64_t k = 0; k < chunks; k++) {
        int64_t from = k * CHUNK_ROWS, count = l->rows - from < CHUNK_ROWS ? l->rows - from : CHUNK_ROWS;
        SUFFIX(layer_chunk)(l, from, count, pw ? pw + k * width : NULL, pb ? pb + k * width : NULL);
    }
    for (int64_t j = 0; gw && j < width; j++)
        gw[j] = gb[j] = 0;
    for (int64_t k = 0; gw && k < chunks; k++) {
        for (int64_t j = 0; j < width; j++) {
            gw[j] += pw[k * width + j];
            gb[j] += pb[k * width + j];
        }
    }
    ah_dense_close(&partial);
    return 0;
}
