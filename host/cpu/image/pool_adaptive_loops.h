/* For pool_adaptive.c and one element type: REAL and SUFFIX(name) are set by cpu/loop/for_reals.h. */

/* Return the offset from x of the largest element of a window of `rows` x `columns`, whose rows are `step` apart: the
 * first of equals, the last NaN. */
static int64_t SUFFIX(place_of)(const REAL *x, int64_t rows, int64_t columns, int64_t step)
{
    const REAL *seen = x;
    REAL best = (REAL)-INFINITY;
    for (int64_t i = 0; i < rows; i++) {
        REAL m = SUFFIX(ah_largest)(x + i * step, columns);
        if (m > best || m != m) {
            best = m;
            seen = x + i * step;
        }
    }
    int64_t at = 0, last = columns - 1;
    if (best != best)
        for (at = last; at > 0 && seen[at] == seen[at]; at--) {
        }
    else
        while (at < last && seen[at] != best)
            at++;
    return seen - x + at;
}

/* Values and their places in the plane. */
static void SUFFIX(adaptive_max)(const struct ah_window *s, const REAL *restrict x, REAL *restrict y,
                                 int64_t *restrict place)
{
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * s->h * s->w, AH_SHARE_MIDDLE))
    for (int64_t r = 0; r < s->n * s->c * s->oh; r++) {
        const REAL *plane = x + r / s->oh * s->h * s->w;
        int64_t oy = r % s->oh, top = oy * s->h / s->oh, rows = ((oy + 1) * s->h + s->oh - 1) / s->oh - top;
        for (int64_t ox = 0; ox < s->ow; ox++) {
            int64_t left = ox * s->w / s->ow, columns = ((ox + 1) * s->w + s->ow - 1) / s->ow - left;
            const REAL *first = plane + top * s->w + left;
            bool whole = columns == s->w; /* rows follow each other */
            int64_t at = first - plane +
                         SUFFIX(place_of)(first, whole ? 1 : rows, whole ? rows * columns : columns, s->w);
            y[r * s->ow + ox] = plane[at];
            place[r * s->ow + ox] = at;
        }
    }
}
