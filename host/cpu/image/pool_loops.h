/* Pooling over row-major planes for one element type: REAL and SUFFIX(name) are set by cpu/loop/for_reals.h. Threads
 * own planes. */

/* One tap of the windows of an output row, those from lo to hi that it reaches: x[o * step] against the best so far.
 * `place` may be NULL; `code` is the tap's. NaN wins. */
static inline void SUFFIX(take_tap)(const REAL *restrict x, int64_t step, int64_t lo, int64_t hi, REAL *restrict best,
                                    int32_t *restrict place, int32_t code)
{
    if (place) {
#pragma omp simd
        for (int64_t o = lo; o < hi; o++) {
            REAL v = x[o * step];
            bool take = v > best[o] || v != v || place[o] < 0;
            best[o] = take ? v : best[o];
            place[o] = take ? code : place[o];
        }
    } else {
#pragma omp simd
        for (int64_t o = lo; o < hi; o++) {
            REAL v = x[o * step];
            best[o] = v > best[o] || v != v ? v : best[o];
        }
    }
}

/* A row of maxima of windows that are inside the input, of a known size: eight at a time, whatever the row's length. */
static inline __attribute__((always_inline)) void SUFFIX(max_fixed)(const int rows, const int columns, const int step,
                                                                    int64_t n, const REAL *restrict x, int64_t below,
                                                                    REAL *restrict y, int32_t *restrict place)
{
#pragma omp simd simdlen(8)
    for (int64_t o = 0; o < n; o++) {
        REAL best = x[o * step];
        int32_t code = 0;
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < columns; j++) {
                REAL v = x[i * below + o * step + j];
                bool take = (v > best) | (v != v);
                best = take ? v : best;
                code = take ? i * columns + j : code;
            }
        }
        y[o] = best;
        if (place)
            place[o] = code;
    }
}

/* Write a row of usual windows, 2 x 2 and 2 x 1 (of the depth of volumes); false: the row has others. */
static bool SUFFIX(max_usual)(const struct ah_window *s, const REAL *plane, int64_t top, REAL *y, int32_t *place)
{
    bool pairs = s->kernel[1] == 2 && s->stride[1] == 2;
    if (s->kernel[0] != 2 || !(pairs || (s->kernel[1] == 1 && s->stride[1] == 1)) || s->padding[1] > 0 ||
        s->dilation[0] != 1 || s->dilation[1] != 1 || top < 0 || top + 2 > s->h || s->ow * s->kernel[1] > s->w)
        return false;
    const REAL *x = plane + top * s->w;
    if (pairs && place)
        SUFFIX(max_fixed)(2, 2, 2, s->ow, x, s->w, y, place);
    else if (pairs)
        SUFFIX(max_fixed)(2, 2, 2, s->ow, x, s->w, y, NULL);
    else if (place)
        SUFFIX(max_fixed)(2, 1, 1, s->ow, x, s->w, y, place);
    else
        SUFFIX(max_fixed)(2, 1, 1, s->ow, x, s->w, y, NULL);
    return true;
}

/* The maxima of a short row, window by window: its vectors would be mostly empty. `rows` of them are in the input. */
static void SUFFIX(max_short_row)(const struct ah_window *s, const REAL *restrict first, int64_t rows,
                                  REAL *restrict y)
{
    int64_t dilation = s->dilation[1], width = s->kernel[1], below = s->w * s->dilation[0];
    for (int64_t o = 0; o < s->ow; o++) {
        int64_t left = o * s->stride[1] - s->padding[1];
        struct reach columns = {0, width};
        if (left < 0 || left + (width - 1) * dilation >= s->w)
            columns = reach_of(left, width, dilation, s->w);
        REAL best = -INFINITY;
        for (int64_t i = 0; i < rows; i++) {
            const REAL *x = first + i * below + left;
            for (int64_t j = columns.first; j < columns.end; j++) {
                REAL v = x[j * dilation];
                best = ((v > best) | (v != v)) ? v : best;
            }
        }
        y[o] = best;
    }
}

/* The row of outputs whose windows begin at input row `top`. */
static void SUFFIX(max_row)(const struct ah_window *s, const REAL *plane, int64_t top, REAL *restrict y,
                            int32_t *restrict place)
{
    int64_t step = s->stride[1], dilation = s->dilation[1], most = (s->w - 1 + s->padding[1]) / dilation + 1;
    struct reach rows = reach_of(top, s->kernel[0], s->dilation[0], s->h);
    if (SUFFIX(max_usual)(s, plane, top, y, place))
        return;
    if (!place && s->ow <= 12) {
        SUFFIX(max_short_row)(s, plane + (top + rows.first * s->dilation[0]) * s->w, rows.end - rows.first, y);
        return;
    }
    struct reach columns = {reach_of((s->ow - 1) * step - s->padding[1], s->kernel[1], dilation, s->w).first,
                            pool_least(s->kernel[1], most)};
    for (int64_t o = 0; o < s->ow; o++)
        y[o] = -INFINITY;
    for (int64_t o = 0; place && o < s->ow; o++)
        place[o] = -1;
    for (int64_t i = rows.first; i < rows.end; i++) {
        const REAL *row = plane + (top + i * s->dilation[0]) * s->w;
        for (int64_t j = columns.first; j < columns.end; j++) {
            int64_t first = j * dilation - s->padding[1]; /* the column that the first window would read */
            int64_t lo = first < 0 ? (-first + step - 1) / step : 0;
            int64_t hi = first < s->w ? pool_least(s->ow, (s->w - 1 - first) / step + 1) : 0;
            int32_t code = (int32_t)(i * s->kernel[1] + j);
            if (step == 1)
                SUFFIX(take_tap)(row + first, 1, lo, hi, y, place, code);
            else if (step == 2)
                SUFFIX(take_tap)(row + first, 2, lo, hi, y, place, code);
            else
                SUFFIX(take_tap)(row + first, step, lo, hi, y, place, code);
        }
    }
    for (int64_t o = 0; place && o < s->ow; o++)
        place[o] = place[o] < 0 ? 0 : place[o];
}

/* The maximum of each window and, unless `place` is NULL, its position kh * KW + kw within the window; NaN wins, the
 * first of equals wins, padding never does. The result of a window without input is -infinity at position 0. */
void SUFFIX(ah_max_planes)(const struct ah_window *s, const REAL *restrict x, REAL *restrict y,
                           int32_t *restrict place)
{
    int64_t pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * pixels, AH_SHARE_HEAVY))
    for (int64_t row = 0; row < s->n * s->c * s->oh; row++) {
        int64_t top = row % s->oh * s->stride[0] - s->padding[0];
        SUFFIX(max_row)(s, x + row / s->oh * s->h * s->w, top, y + row * s->ow, place ? place + row * s->ow : NULL);
    }
}

/* Without padding all places are in the input: `offset` has that of each from its window's first element. */
static void SUFFIX(spread_maxima)(const struct ah_window *s, const int64_t *offset, const REAL *restrict g,
                                  const int32_t *restrict place, REAL *restrict plane)
{
    for (int64_t oy = 0; oy < s->oh; oy++, g += s->ow, place += s->ow) {
        REAL *row = plane + oy * s->stride[0] * s->w;
        for (int64_t ox = 0; ox < s->ow; ox++)
            row[ox * s->stride[1] + offset[place[ox]]] += g[ox];
    }
}

void SUFFIX(ah_max_planes_backward)(const struct ah_window *s, const REAL *restrict g, const int32_t *restrict place,
                                    REAL *restrict gx)
{
    enum { MOST = 64 };
    int64_t pixels = s->oh * s->ow, offset[MOST], taps = s->kernel[0] * s->kernel[1];
    bool inside = s->padding[0] == 0 && s->padding[1] == 0 && taps <= MOST;
    for (int64_t at = 0; inside && at < taps; at++)
        offset[at] = at / s->kernel[1] * s->dilation[0] * s->w + at % s->kernel[1] * s->dilation[1];
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * pixels, AH_SHARE_HEAVY))
    for (int64_t p = 0; p < s->n * s->c; p++) {
        REAL *plane = gx + p * s->h * s->w;
        memset(plane, 0, (size_t)(s->h * s->w) * sizeof *plane);
        if (inside) {
            SUFFIX(spread_maxima)(s, offset, g + p * pixels, place + p * pixels, plane);
            continue;
        }
        for (int64_t o = 0; o < pixels; o++) {
            int64_t at = place[p * pixels + o];
            int64_t iy = o / s->ow * s->stride[0] - s->padding[0] + at / s->kernel[1] * s->dilation[0];
            int64_t ix = o % s->ow * s->stride[1] - s->padding[1] + at % s->kernel[1] * s->dilation[1];
            if (iy >= 0 && iy < s->h && ix >= 0 && ix < s->w)
                plane[iy * s->w + ix] += g[p * pixels + o];
        }
    }
}

/* The mean of a rectangle. A plane of 512 x 512 summed in float32 alone is wrong in the third digit. */
static REAL SUFFIX(mean_of)(const struct ah_window *s, const REAL *plane, struct rectangle a)
{
    double sum = 0;
    for (int64_t iy = a.y0; iy < a.y1; iy++) {
        const REAL *row = plane + iy * s->w + a.x0;
        int64_t n = a.x1 - a.x0;
        if (n == s->w) { /* whole rows follow each other */
            n *= a.y1 - iy;
            iy = a.y1;
        }
        if (n < 16)
            for (int64_t i = 0; i < n; i++)
                sum += (double)row[i];
        else
            sum += SUFFIX(sum_of)(row, n);
    }
    return (REAL)(sum / (double)a.divisor);
}

static inline void SUFFIX(add_tap)(const REAL *restrict x, int64_t step, int64_t n, double *restrict sum)
{
#pragma omp simd
    for (int64_t o = 0; o < n; o++)
        sum[o] += (double)x[o * step];
}

static inline __attribute__((always_inline)) void SUFFIX(mean_fixed)(const int rows, const int columns, int64_t n,
                                                                     const REAL *restrict x, int64_t below,
                                                                     double divisor, REAL *restrict y)
{
#pragma omp simd simdlen(8)
    for (int64_t o = 0; o < n; o++) {
        double sum = 0;
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                sum += (double)x[i * below + o * columns + j];
        y[o] = (REAL)(sum / divisor);
    }
}

/* Write a row of usual windows side by side, 2 x 2 and 2 x 1; false: the row has others. */
static bool SUFFIX(mean_usual)(const struct ah_window *s, const struct ah_rectangles *r, const REAL *plane,
                               int64_t oy, REAL *y)
{
    if (r->adaptive || s->kernel[0] != 2 || s->kernel[1] > 2 || s->stride[1] != s->kernel[1] || s->padding[1] > 0 ||
        s->ow * s->kernel[1] > s->w)
        return false;
    struct rectangle a = rectangle_at(s, r, oy, 0);
    if (a.y1 - a.y0 != 2)
        return false;
    const REAL *x = plane + a.y0 * s->w;
    if (s->kernel[1] == 2)
        SUFFIX(mean_fixed)(2, 2, s->ow, x, s->w, (double)a.divisor, y);
    else
        SUFFIX(mean_fixed)(2, 1, s->ow, x, s->w, (double)a.divisor, y);
    return true;
}

/* A row of averages. Narrow windows that are inside the input along the row are summed tap by tap, many at a time: the
 * additions of each are those of mean_of, in their order. */
static void SUFFIX(mean_row)(const struct ah_window *s, const struct ah_rectangles *r, const REAL *plane, int64_t oy,
                             REAL *restrict y)
{
    enum { MANY = 128 };
    struct reach inside = means_inside(s, r);
    double sum[MANY];
    if (SUFFIX(mean_usual)(s, r, plane, oy, y))
        return;
    for (int64_t ox = 0, n = 1; ox < s->ow; ox += n) {
        struct rectangle a = rectangle_at(s, r, oy, ox);
        n = ox < inside.first || ox >= inside.end ? 1 : pool_least(MANY, inside.end - ox);
        if (n == 1) {
            y[ox] = SUFFIX(mean_of)(s, plane, a);
            continue;
        }
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t iy = a.y0; iy < a.y1; iy++) {
            for (int64_t j = a.x0; j < a.x1; j++) {
                const REAL *x = plane + iy * s->w + j;
                if (s->stride[1] == 1)
                    SUFFIX(add_tap)(x, 1, n, sum);
                else if (s->stride[1] == 2)
                    SUFFIX(add_tap)(x, 2, n, sum);
                else
                    SUFFIX(add_tap)(x, s->stride[1], n, sum);
            }
        }
        for (int64_t o = 0; o < n; o++)
            y[ox + o] = (REAL)(sum[o] / (double)a.divisor);
    }
}

/* Averages of rectangles; the adjoint spreads each gradient over its rectangle. */
void SUFFIX(ah_mean_planes)(const struct ah_window *s, const struct ah_rectangles *r, const REAL *restrict x,
                            REAL *restrict y)
{
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * s->h * s->w, AH_SHARE_MIDDLE))
    for (int64_t row = 0; row < s->n * s->c * s->oh; row++)
        SUFFIX(mean_row)(s, r, x + row / s->oh * s->h * s->w, row % s->oh, y + row * s->ow);
}

static inline void SUFFIX(spread_tap)(REAL *restrict gx, int64_t step, int64_t n, const REAL *restrict part)
{
#pragma omp simd
    for (int64_t o = 0; o < n; o++)
        gx[o * step] += part[o];
}

/* The adjoint of mean_row. Elements receive the parts of a row of windows from the first window on: the last tap goes
 * first. */
static void SUFFIX(mean_row_backward)(const struct ah_window *s, const struct ah_rectangles *r, const REAL *g,
                                      int64_t oy, REAL *plane)
{
    enum { MANY = 128 };
    struct reach inside = means_inside(s, r);
    REAL part[MANY];
    for (int64_t ox = 0, n = 1; ox < s->ow; ox += n) {
        struct rectangle a = rectangle_at(s, r, oy, ox);
        n = ox < inside.first || ox >= inside.end ? 1 : pool_least(MANY, inside.end - ox);
        for (int64_t o = 0; o < n; o++)
            part[o] = g[ox + o] / (REAL)a.divisor;
        for (int64_t iy = a.y0; iy < a.y1; iy++) {
            REAL *row = plane + iy * s->w;
            if (n == 1)
                for (int64_t ix = a.x0; ix < a.x1; ix++)
                    row[ix] += part[0];
            else
                for (int64_t ix = a.x1 - 1; ix >= a.x0; ix--) {
                    if (s->stride[1] == 1)
                        SUFFIX(spread_tap)(row + ix, 1, n, part);
                    else if (s->stride[1] == 2)
                        SUFFIX(spread_tap)(row + ix, 2, n, part);
                    else
                        SUFFIX(spread_tap)(row + ix, s->stride[1], n, part);
                }
        }
    }
}

void SUFFIX(ah_mean_planes_backward)(const struct ah_window *s, const struct ah_rectangles *r, const REAL *restrict g,
                                     REAL *restrict gx)
{
    int64_t pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * s->h * s->w, AH_SHARE_MIDDLE))
    for (int64_t p = 0; p < s->n * s->c; p++) {
        REAL *plane = gx + p * s->h * s->w;
        memset(plane, 0, (size_t)(s->h * s->w) * sizeof *plane);
        for (int64_t oy = 0; oy < s->oh; oy++)
            SUFFIX(mean_row_backward)(s, r, g + p * pixels + oy * s->ow, oy, plane);
    }
}
