/* Resampling for one real type: the taps of an axis, rows out of rows, and the adjoint. */

/* The step from one output position to the next, in input positions. */
static REAL SUFFIX(step_of)(int64_t in, int64_t out, double scale, bool align_corners)
{
    if (align_corners)
        return out > 1 ? (REAL)(in - 1) / (REAL)(out - 1) : 0;
    return scale > 0 ? (REAL)(1.0 / scale) : (REAL)in / (REAL)out;
}

/* Keys' cubic at distances 1 + t, t, 1 - t, 2 - t. */
static void SUFFIX(cubic_weights)(REAL t, REAL *weight)
{
    const REAL a = (REAL)-0.75;
    REAL x[2] = {t, 1 - t};
    for (int side = 0; side < 2; side++) {
        REAL near = x[side], far = near + 1;
        weight[side ? 2 : 1] = ((a + 2) * near - (a + 3)) * near * near + 1;
        weight[side ? 3 : 0] = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
    }
}

static REAL SUFFIX(filter)(enum ah_filter filter, REAL x)
{
    const REAL pi = (REAL)3.14159265358979323846;
    x = x < 0 ? -x : x;
    if (filter == AH_FILTER_LINEAR)
        return x < 1 ? 1 - x : 0;
    if (filter == AH_FILTER_CUBIC) {
        const REAL a = (REAL)-0.5;
        if (x < 1)
            return ((a + 2) * x - (a + 3)) * x * x + 1;
        return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    }
    if (x == 0 || x >= 3)
        return x == 0;
    return (REAL)(sin((double)(pi * x)) * sin((double)(pi * x / 3)) * 3 / (double)(pi * pi * x * x));
}

/* With antialias the filter is as wide as the step, and its weights sum to 1. */
static void SUFFIX(smooth_taps)(const struct ah_resample_axis *a, enum ah_filter filter, REAL step, REAL *weight)
{
    REAL wide = step >= 1 ? step : 1, support = (REAL)(ah_filter_reach(filter)) * wide;
    for (int64_t o = 0; o < a->out; o++) {
        REAL centre = step * ((REAL)o + (REAL)0.5), total = 0;
        int64_t from = (int64_t)(centre - support + (REAL)0.5), end = (int64_t)(centre + support + (REAL)0.5);
        from = from < 0 ? 0 : from;
        end = end > a->in ? a->in : end;
        int count = (int)(end - from < a->taps ? end - from : a->taps);
        count = count < 1 ? 1 : count;
        for (int k = 0; k < count; k++) {
            a->at[k * a->out + o] = (int32_t)(from + k < a->in ? from + k : a->in - 1);
            weight[k * a->out + o] = SUFFIX(filter)(filter, ((REAL)(from + k) - centre + (REAL)0.5) / wide);
            total += weight[k * a->out + o];
        }
        for (int k = 0; k < count && total != 0; k++)
            weight[k * a->out + o] /= total;
        a->count[o] = count;
    }
}

/* Compute the input positions of an axis for each output position, and their weights. */
static void SUFFIX(axis_taps)(struct ah_resample_axis *a, const struct ah_resampling *r, double scale, REAL *weight)
{
    REAL step = SUFFIX(step_of)(a->in, a->out, scale, r->align_corners);
    if (a->in == a->out && (a->in == 1 || r->antialias)) { /* also an axis that is not there */
        for (int64_t i = 0; i < a->taps * a->out; i++) {
            a->at[i] = (int32_t)(i % a->out);
            weight[i] = i < a->out;
        }
        for (int64_t o = 0; o < a->out; o++)
            a->count[o] = 1;
        return;
    }
    if (r->antialias) {
        SUFFIX(smooth_taps)(a, r->filter, step, weight);
        return;
    }
    for (int64_t o = 0; o < a->out; o++) {
        a->count[o] = a->taps;
        if (r->filter == AH_FILTER_NEAREST || r->filter == AH_FILTER_NEAREST_EXACT) {
            REAL at = r->filter == AH_FILTER_NEAREST ? step * (REAL)o : step * ((REAL)o + (REAL)0.5);
            if (a->whole && (a->out == a->in || a->out == 2 * a->in))
                at = (REAL)(a->out == a->in ? o : o / 2);
            a->at[o] = (int32_t)(at < (REAL)(a->in - 1) ? at : (REAL)(a->in - 1));
            weight[o] = 1;
            continue;
        }
        REAL at = r->align_corners ? step * (REAL)o : step * ((REAL)o + (REAL)0.5) - (REAL)0.5;
        if (r->filter == AH_FILTER_LINEAR && a->in == a->out)
            at = (REAL)o;
        at = r->filter == AH_FILTER_LINEAR && at < 0 ? 0 : at;
        int64_t floor_at = (int64_t)at - (at < (REAL)(int64_t)at);
        floor_at = floor_at > a->in - 1 ? a->in - 1 : floor_at;
        REAL part = at - (REAL)floor_at, w[4];
        part = part < 0 ? 0 : part > 1 ? 1 : part;
        if (r->filter == AH_FILTER_LINEAR) {
            w[0] = 1 - part;
            w[1] = part;
        } else {
            SUFFIX(cubic_weights)(part, w);
        }
        for (int k = 0; k < a->taps; k++) {
            int64_t from = floor_at + k - (r->filter == AH_FILTER_CUBIC);
            from = from < 0 ? 0 : from > a->in - 1 ? a->in - 1 : from;
            a->at[k * a->out + o] = (int32_t)from;
            weight[k * a->out + o] = w[k];
        }
    }
}

/* Return the weighted sum of the input rows that output row (z, y) reads: in `row`, or a pointer to the single row. */
static const REAL *SUFFIX(row_in)(const struct ah_resampling *r, const REAL *plane, int64_t z, int64_t y, REAL *row)
{
    const struct ah_resample_axis *az = &r->axis[0], *ay = &r->axis[1];
    const REAL *wz = az->weight, *wy = ay->weight;
    int64_t w = r->axis[2].in;
    bool begun = false;
    for (int i = 0; i < az->count[z]; i++) {
        for (int j = 0; j < ay->count[y]; j++) {
            int64_t iz = az->at[i * az->out + z], iy = ay->at[j * ay->out + y];
            const REAL *from = plane + (iz * ay->in + iy) * w;
            REAL weight = wz[i * az->out + z] * wy[j * ay->out + y];
            if (weight == 1 && az->count[z] * ay->count[y] == 1)
                return from;
            if (begun)
                for (int64_t x = 0; x < w; x++)
                    row[x] += weight * from[x];
            else
                for (int64_t x = 0; x < w; x++)
                    row[x] = weight * from[x];
            begun = true;
        }
    }
    return row;
}

static void SUFFIX(row_out)(const struct ah_resample_axis *a, const REAL *restrict row, REAL *restrict to)
{
    const REAL *restrict w = a->weight;
    const int32_t *restrict at = a->at;
    int64_t n = a->out;
    if (a->ragged) {
        for (int64_t x = 0; x < n; x++) {
            REAL sum = 0;
            for (int k = 0; k < a->count[x]; k++)
                sum += w[k * n + x] * row[at[k * n + x]];
            to[x] = sum;
        }
    } else if (a->taps == 2) {
        for (int64_t x = 0; x < n; x++)
            to[x] = w[x] * row[at[x]] + w[n + x] * row[at[n + x]];
    } else {
        for (int64_t x = 0; x < n; x++)
            to[x] = w[x] * row[at[x]];
        for (int k = 1; k < a->taps; k++)
            for (int64_t x = 0; x < n; x++)
                to[x] += w[k * n + x] * row[at[k * n + x]];
    }
}

static void SUFFIX(resample)(const struct ah_resampling *r, const REAL *in, REAL *out, REAL *rows)
{
    int64_t d = r->axis[0].out, h = r->axis[1].out, w = r->axis[2].out, row_in = r->axis[2].in;
    int64_t volume = r->axis[0].in * r->axis[1].in * row_in;
#pragma omp parallel for schedule(static) if (ah_worth_threads(r->planes * d * h * w, AH_SHARE_MIDDLE))
    for (int64_t line = 0; line < r->planes * d * h; line++) {
        const REAL *plane = in + line / (d * h) * volume;
        REAL *own = rows + ah_thread_index() * row_in;
        SUFFIX(row_out)(&r->axis[2], SUFFIX(row_in)(r, plane, line / h % d, line % h, own), out + line * w);
    }
}

/* The adjoint of row_in and row_out: add where they read. */
static void SUFFIX(spread_row)(const struct ah_resampling *r, const REAL *g, int64_t z, int64_t y, REAL *plane,
                               REAL *row)
{
    const struct ah_resample_axis *az = &r->axis[0], *ay = &r->axis[1], *ax = &r->axis[2];
    const REAL *wz = az->weight, *wy = ay->weight, *wx = ax->weight;
    memset(row, 0, (size_t)ax->in * sizeof *row);
    if (ax->ragged)
        for (int64_t x = 0; x < ax->out; x++)
            for (int k = 0; k < ax->count[x]; k++)
                row[ax->at[k * ax->out + x]] += wx[k * ax->out + x] * g[x];
    else
        for (int k = 0; k < ax->taps; k++)
            for (int64_t x = 0; x < ax->out; x++)
                row[ax->at[k * ax->out + x]] += wx[k * ax->out + x] * g[x];
    for (int i = 0; i < az->count[z]; i++) {
        for (int j = 0; j < ay->count[y]; j++) {
            int64_t iz = az->at[i * az->out + z], iy = ay->at[j * ay->out + y];
            REAL *to = plane + (iz * ay->in + iy) * ax->in, weight = wz[i * az->out + z] * wy[j * ay->out + y];
            for (int64_t x = 0; x < ax->in; x++)
                to[x] += weight * row[x];
        }
    }
}

static void SUFFIX(spread)(const struct ah_resampling *r, const REAL *g, REAL *out, REAL *rows)
{
    int64_t d = r->axis[0].out, h = r->axis[1].out, w = r->axis[2].out, row_in = r->axis[2].in;
    int64_t volume = r->axis[0].in * r->axis[1].in * row_in;
#pragma omp parallel for schedule(static) if (ah_worth_threads(r->planes * d * h * w, AH_SHARE_MIDDLE))
    for (int64_t p = 0; p < r->planes; p++) {
        REAL *own = rows + ah_thread_index() * row_in;
        memset(out + p * volume, 0, (size_t)volume * sizeof *out);
        for (int64_t line = 0; line < d * h; line++)
            SUFFIX(spread_row)(r, g + (p * d * h + line) * w, line / h, line % h, out + p * volume, own);
    }
}

/* Fill the axes with r->planes known, then resample or (adjoint) spread. */
void SUFFIX(ah_resample)(struct ah_resampling *r, const void *in, void *out, void *room, bool adjoint)
{
    REAL *weights = room;
    for (int i = 0; i < 3; i++) {
        struct ah_resample_axis *a = &r->axis[i];
        a->weight = weights;
        SUFFIX(axis_taps)(a, r, r->scale[i], weights);
        weights += a->taps * a->out;
    }
    if (adjoint)
        SUFFIX(spread)(r, in, out, weights);
    else
        SUFFIX(resample)(r, in, out, weights);
}
