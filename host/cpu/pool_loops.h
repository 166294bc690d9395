/* Pooling over row-major planes for one element type: REAL and SUFFIX(name) are set by the file that includes this
 * (once per type). Threads own planes. */

/* The maximum of each window and, unless `place` is NULL, its position kh * KW + kw within the window; NaN wins, the
 * first of equals wins, padding never does. */
static void SUFFIX(max_planes)(const struct ah_window *s, const REAL *restrict x, REAL *restrict y,
                               int32_t *restrict place)
{
    int64_t pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * pixels, AH_SHARE_HEAVY))
    for (int64_t p = 0; p < s->n * s->c; p++) {
        const REAL *plane = x + p * s->h * s->w;
        for (int64_t o = 0; o < pixels; o++) {
            int64_t top = o / s->ow * s->stride[0] - s->padding[0], left = o % s->ow * s->stride[1] - s->padding[1];
            REAL best = 0;
            int64_t at = -1;
            struct reach rows = reach_of(top, s->kernel[0], s->dilation[0], s->h);
            struct reach columns = reach_of(left, s->kernel[1], s->dilation[1], s->w);
            for (int64_t i = rows.first; i < rows.end; i++) {
                const REAL *row = plane + (top + i * s->dilation[0]) * s->w + left;
                for (int64_t j = columns.first; j < columns.end; j++) {
                    REAL v = row[j * s->dilation[1]];
                    if (at < 0 || v > best || v != v) {
                        best = v;
                        at = i * s->kernel[1] + j;
                    }
                }
            }
            y[p * pixels + o] = at < 0 ? (REAL)-INFINITY : best;
            if (place)
                place[p * pixels + o] = (int32_t)(at < 0 ? 0 : at);
        }
    }
}

static void SUFFIX(max_planes_backward)(const struct ah_window *s, const REAL *restrict g,
                                        const int32_t *restrict place, REAL *restrict gx)
{
    int64_t pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * pixels, AH_SHARE_HEAVY))
    for (int64_t p = 0; p < s->n * s->c; p++) {
        REAL *plane = gx + p * s->h * s->w;
        memset(plane, 0, (size_t)(s->h * s->w) * sizeof *plane);
        for (int64_t o = 0; o < pixels; o++) {
            int64_t at = place[p * pixels + o];
            int64_t iy = o / s->ow * s->stride[0] - s->padding[0] + at / s->kernel[1] * s->dilation[0];
            int64_t ix = o % s->ow * s->stride[1] - s->padding[1] + at % s->kernel[1] * s->dilation[1];
            if (iy >= 0 && iy < s->h && ix >= 0 && ix < s->w)
                plane[iy * s->w + ix] += g[p * pixels + o];
        }
    }
}

/* Averages of rectangles; the adjoint spreads each gradient over its rectangle. */
static void SUFFIX(mean_planes)(const struct ah_window *s, const struct rectangles *r, const REAL *restrict x,
                                REAL *restrict y)
{
    int64_t pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * s->h * s->w, AH_SHARE_MIDDLE))
    for (int64_t p = 0; p < s->n * s->c; p++) {
        const REAL *plane = x + p * s->h * s->w;
        for (int64_t o = 0; o < pixels; o++) {
            struct rectangle a = rectangle_at(s, r, o / s->ow, o % s->ow);
            double sum = 0; /* a plane of 512 x 512 summed in float32 is wrong in the third digit */
            for (int64_t iy = a.y0; iy < a.y1; iy++) {
                const REAL *row = plane + iy * s->w + a.x0;
                int64_t n = a.x1 - a.x0;
                if (n < 16) {
                    for (int64_t i = 0; i < n; i++)
                        sum += (double)row[i];
                    continue;
                }
#pragma omp simd reduction(+ : sum)
                for (int64_t i = 0; i < n; i++)
                    sum += (double)row[i];
            }
            y[p * pixels + o] = (REAL)(sum / (double)a.divisor);
        }
    }
}

static void SUFFIX(mean_planes_backward)(const struct ah_window *s, const struct rectangles *r,
                                         const REAL *restrict g, REAL *restrict gx)
{
    int64_t pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * s->h * s->w, AH_SHARE_MIDDLE))
    for (int64_t p = 0; p < s->n * s->c; p++) {
        REAL *plane = gx + p * s->h * s->w;
        memset(plane, 0, (size_t)(s->h * s->w) * sizeof *plane);
        for (int64_t o = 0; o < pixels; o++) {
            struct rectangle a = rectangle_at(s, r, o / s->ow, o % s->ow);
            REAL part = g[p * pixels + o] / (REAL)a.divisor;
            for (int64_t iy = a.y0; iy < a.y1; iy++)
                for (int64_t ix = a.x0; ix < a.x1; ix++)
                    plane[iy * s->w + ix] += part;
        }
    }
}
