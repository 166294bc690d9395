/* Batch norm over rows of channels, summed by chunks of rows, for one type of items: norm_instances.c sets ITEM,
 * ROWS(name), and READ and WRITE, the conversions between ITEM and float. */

/* Add up, over the rows of a chunk, x and then (x - the chunk's mean)^2 while the chunk is in the cache; or, of two
 * inputs, g and g (x - mean). Some rows at a time, so that memory is read in order. */
static inline __attribute__((always_inline)) void ROWS(sum_rows)(const int rows, const ITEM *restrict x, int64_t c,
                                                                 float *restrict sums)
{
    for (int64_t k = 0; k < c; k++) {
        float sum = sums[k];
        for (int i = 0; i < rows; i++)
            sum += READ(x[i * c + k]);
        sums[k] = sum;
    }
}

static inline __attribute__((always_inline)) void ROWS(square_rows)(const int rows, const ITEM *restrict x, int64_t c,
                                                                    const float *restrict sums, float divisor,
                                                                    float *restrict squares)
{
    for (int64_t k = 0; k < c; k++) {
        float mean = sums[k] / divisor, square = squares[k];
        for (int i = 0; i < rows; i++)
            square += (READ(x[i * c + k]) - mean) * (READ(x[i * c + k]) - mean);
        squares[k] = square;
    }
}

static inline __attribute__((always_inline)) void ROWS(gradient_rows)(const int rows, const ITEM *restrict g,
                                                                      const ITEM *restrict x, int64_t c,
                                                                      const float *restrict mean,
                                                                      float *restrict sum_g, float *restrict sum_gx)
{
    for (int64_t k = 0; k < c; k++) {
        float sum = sum_g[k], product = sum_gx[k];
        for (int i = 0; i < rows; i++) {
            sum += READ(g[i * c + k]);
            product += READ(g[i * c + k]) * (READ(x[i * c + k]) - mean[k]);
        }
        sum_g[k] = sum;
        sum_gx[k] = product;
    }
}

static void ROWS(moment_chunk)(const void *from, int64_t rows, int64_t c, float *sums, float *squares)
{
    const ITEM *x = from;
    memset(sums, 0, (size_t)c * sizeof *sums);
    memset(squares, 0, (size_t)c * sizeof *squares);
    int64_t i = 0;
    for (; i + ROW_GROUP <= rows; i += ROW_GROUP)
        ROWS(sum_rows)(ROW_GROUP, x + i * c, c, sums);
    for (; i < rows; i++)
        ROWS(sum_rows)(1, x + i * c, c, sums);
    for (i = 0; i + ROW_GROUP <= rows; i += ROW_GROUP)
        ROWS(square_rows)(ROW_GROUP, x + i * c, c, sums, (float)rows, squares);
    for (; i < rows; i++)
        ROWS(square_rows)(1, x + i * c, c, sums, (float)rows, squares);
}

static void ROWS(gradient_chunk)(const void *gradient, const void *input, int64_t rows, int64_t c, const float *mean,
                                 float *sum_g, float *sum_gx)
{
    const ITEM *g = gradient, *x = input;
    memset(sum_g, 0, (size_t)c * sizeof *sum_g);
    memset(sum_gx, 0, (size_t)c * sizeof *sum_gx);
    int64_t i = 0;
    for (; i + ROW_GROUP <= rows; i += ROW_GROUP)
        ROWS(gradient_rows)(ROW_GROUP, g + i * c, x + i * c, c, mean, sum_g, sum_gx);
    for (; i < rows; i++)
        ROWS(gradient_rows)(1, g + i * c, x + i * c, c, mean, sum_g, sum_gx);
}

/* One pass over memory: the squares about the mean of all are those about the chunks' means and, for each chunk, its
 * rows times the squared difference of the means (Chan, Golub and LeVeque, 1979). */
static int ROWS(row_stats)(const struct ah_batch *b, const void *from, float *mean, float *variance)
{
    const ITEM *x = from;
    int64_t rows = b->n * b->pixels, c = b->c, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    struct ah_dense partial = {0};
    int status = ah_dense_scratch(&partial, (size_t)(2 * chunks * c) * sizeof(float));
    if (status < 0)
        return status;
    float *sums = partial.block, *squares = sums + chunks * c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t first = i * CHUNK_ROWS, count = rows - first < CHUNK_ROWS ? rows - first : CHUNK_ROWS;
        ROWS(moment_chunk)(x + first * c, count, c, sums + i * c, squares + i * c);
    }
    status = ah_column_sum_f32(sums, chunks, c, mean);
    for (int64_t k = 0; k < c; k++)
        mean[k] /= (float)rows;
    for (int64_t i = 0; i < chunks; i++) {
        int64_t left = rows - i * CHUNK_ROWS;
        float count = (float)(left < CHUNK_ROWS ? left : CHUNK_ROWS);
        for (int64_t k = i * c; k < (i + 1) * c; k++) {
            float off = sums[k] / count - mean[k - i * c];
            squares[k] += count * off * off;
        }
    }
    if (status == 0)
        status = ah_column_sum_f32(squares, chunks, c, variance);
    for (int64_t k = 0; k < c; k++)
        variance[k] /= (float)rows;
    ah_dense_close(&partial);
    return status;
}

static int ROWS(row_sums)(const struct ah_batch *b, const void *gradient, const void *input, const float *mean,
                          float *sum_g, float *sum_gx)
{
    const ITEM *g = gradient, *x = input;
    int64_t rows = b->n * b->pixels, c = b->c, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    struct ah_dense partial = {0};
    int status = ah_dense_scratch(&partial, (size_t)(2 * chunks * c) * sizeof(float));
    if (status < 0)
        return status;
    float *pg = partial.block, *px = pg + chunks * c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(rows * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t first = i * CHUNK_ROWS, count = rows - first < CHUNK_ROWS ? rows - first : CHUNK_ROWS;
        ROWS(gradient_chunk)(g + first * c, x + first * c, count, c, mean, pg + i * c, px + i * c);
    }
    status = ah_column_sum_f32(pg, chunks, c, sum_g);
    if (status == 0)
        status = ah_column_sum_f32(px, chunks, c, sum_gx);
    ah_dense_close(&partial);
    return status;
}

static void ROWS(row_apply)(const struct ah_batch *b, const void *input, const float *restrict scale,
                            const float *restrict shift, void *output)
{
    const ITEM *restrict x = input;
    ITEM *restrict y = output;
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++)
        for (int64_t k = 0; k < c; k++)
            y[i * c + k] = WRITE(READ(x[i * c + k]) * scale[k] + shift[k]);
}

static void ROWS(row_combine)(const struct ah_batch *b, const void *gradient, const void *input,
                              const float *restrict mean, const float *restrict ca, const float *restrict cb,
                              const float *restrict cc, void *output)
{
    const ITEM *restrict g = gradient, *restrict x = input;
    ITEM *restrict gx = output;
    int64_t c = b->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(b->n * b->pixels * c, AH_SHARE_MIDDLE))
    for (int64_t i = 0; i < b->n * b->pixels; i++)
        for (int64_t k = 0; k < c; k++)
            gx[i * c + k] = WRITE((READ(g[i * c + k]) - cb[k] - (READ(x[i * c + k]) - mean[k]) * cc[k]) * ca[k]);
}

static void ROWS(group_apply)(const void *input, int64_t rows, int64_t c, const float *restrict mean,
                              const float *restrict scale, const float *restrict shift, void *output)
{
    const ITEM *restrict x = input;
    ITEM *restrict y = output;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < c; k++)
            y[i * c + k] = WRITE((READ(x[i * c + k]) - mean[k]) * scale[k] + shift[k]);
}

static void ROWS(group_combine)(const void *gradient, const void *input, int64_t rows, int64_t c,
                                const struct ah_row_gradient *f, void *output)
{
    const ITEM *restrict g = gradient, *restrict x = input;
    ITEM *restrict gx = output;
    const float *restrict w = f->w, *restrict sum = f->sum, *restrict mean = f->mean, *restrict along = f->along;
    const float *restrict inverse = f->inverse;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < c; k++) {
            int64_t at = i * c + k;
            gx[at] = WRITE((READ(g[at]) * w[k] - sum[k] - (READ(x[at]) - mean[k]) * along[k]) * inverse[k]);
        }
    }
}

const struct ah_row_loops ROWS(ah_row_loops) = {ROWS(row_stats), ROWS(row_sums), ROWS(row_apply), ROWS(row_combine),
                                                ROWS(moment_chunk), ROWS(gradient_chunk), ROWS(group_apply),
                                                ROWS(group_combine)};

#undef ITEM
#undef ROWS
#undef READ
#undef WRITE
