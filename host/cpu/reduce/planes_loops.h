/* The loops of planes.h for one dtype: planes.c sets STORED, the type in memory; ITEM, that of a chunk between OPEN and
 * CLOSE, which convert it by way of a room where the two differ; READ, WRITE and, for vectors, WIDE and NARROW between
 * ITEM and REAL; and LANES, the vectors of REAL, which REALS reads. */
#define WIDTH ((int64_t)(sizeof(LANES) / sizeof(REAL)))

static inline REAL PLANE(plane_total)(LANES v)
{
    union {
        LANES v;
        REAL at[sizeof(LANES) / sizeof(REAL)];
    } sum = {v};
    for (int64_t width = WIDTH / 2; width > 0; width /= 2)
        for (int64_t i = 0; i < width; i++)
            sum.at[i] += sum.at[i + width];
    return sum.at[0];
}

/* The sums over a chunk, in four vectors, which hide the latency of the additions. */
static REAL PLANE(plane_sum)(int64_t n, const ITEM *x)
{
    LANES sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
        for (int k = 0; k < 4; k++)
            sum[k] += WIDE(x + i + k * WIDTH);
    for (; i + WIDTH <= n; i += WIDTH)
        sum[0] += WIDE(x + i);
    REAL total = PLANE(plane_total)((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i++)
        total += READ(x[i]);
    return total;
}

static REAL PLANE(plane_squares)(int64_t n, const ITEM *x, REAL mean)
{
    LANES sum[4] = {{0}}, m = SPREAD(mean);
    int64_t i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH) {
        for (int k = 0; k < 4; k++) {
            LANES off = WIDE(x + i + k * WIDTH) - m;
            sum[k] += off * off;
        }
    }
    for (; i + WIDTH <= n; i += WIDTH) {
        LANES off = WIDE(x + i) - m;
        sum[0] += off * off;
    }
    REAL total = PLANE(plane_total)((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i++)
        total += (READ(x[i]) - mean) * (READ(x[i]) - mean);
    return total;
}

static inline struct ah_moments PLANE(plane_chunk_moments)(int64_t n, const STORED *from)
{
    ROOM(room);
    const ITEM *x = OPEN(room, from, n);
    double mean = (double)PLANE(plane_sum)(n, x) / (double)n;
    return (struct ah_moments){(double)n, mean, (double)PLANE(plane_squares)(n, x, (REAL)mean)};
}

static struct ah_moments PLANE(plane_moments)(int64_t n, const void *from)
{
    const STORED *all = from;
    struct ah_moments m = {0};
    if (n <= CHUNK)
        return PLANE(plane_chunk_moments)(n, all);
    for (int64_t at = 0; at < n; at += CHUNK)
        ah_moments_add(&m, PLANE(plane_chunk_moments)(n - at < CHUNK ? n - at : CHUNK, all + at));
    return m;
}

static void PLANE(plane_apply)(int64_t n, const void *from, double mean, double scale, double shift, void *to)
{
    const STORED *all = from;
    STORED *result = to;
    const REAL m = (REAL)mean, s = (REAL)scale, t = (REAL)shift;
    const LANES mm = SPREAD(m), ss = SPREAD(s), tt = SPREAD(t);
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK, i = 0;
        ROOM(room);
        const ITEM *x = OPEN(room, all + at, count);
        ITEM *y = TARGET(room, result + at, count);
        for (; i + WIDTH <= count; i += WIDTH)
            NARROW(y + i, (WIDE(x + i) - mm) * ss + tt);
        for (; i < count; i++)
            y[i] = WRITE((READ(x[i]) - m) * s + t);
        CLOSE(result + at, y, count);
    }
}

static void PLANE(plane_chunk_sums)(int64_t n, const ITEM *g, const ITEM *x, REAL mean, double *sum_g, double *sum_gx)
{
    LANES sum[2] = {{0}}, product[2] = {{0}}, m = SPREAD(mean);
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        for (int k = 0; k < 2; k++) {
            LANES gradient = WIDE(g + i + k * WIDTH);
            sum[k] += gradient;
            product[k] += gradient * (WIDE(x + i + k * WIDTH) - m);
        }
    }
    for (; i + WIDTH <= n; i += WIDTH) {
        LANES gradient = WIDE(g + i);
        sum[0] += gradient;
        product[0] += gradient * (WIDE(x + i) - m);
    }
    REAL total = PLANE(plane_total)(sum[0] + sum[1]), along = PLANE(plane_total)(product[0] + product[1]);
    for (; i < n; i++) {
        total += READ(g[i]);
        along += READ(g[i]) * (READ(x[i]) - mean);
    }
    *sum_g += (double)total;
    *sum_gx += (double)along;
}

static void PLANE(plane_sums)(int64_t n, const void *gradient, const void *input, double mean, double *sum_g,
                              double *sum_gx)
{
    const STORED *all_g = gradient, *all_x = input;
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK;
        ROOM(room_g);
        ROOM(room_x);
        const ITEM *g = OPEN(room_g, all_g + at, count), *x = OPEN(room_x, all_x + at, count);
        PLANE(plane_chunk_sums)(count, g, x, (REAL)mean, sum_g, sum_gx);
    }
}

static void PLANE(plane_combine)(int64_t n, const void *gradient, const void *input, const struct ah_plane_gradient *f,
                                 void *to)
{
    const STORED *all_g = gradient, *all_x = input;
    STORED *result = to;
    const REAL w = (REAL)f->w, sum = (REAL)f->sum, mean = (REAL)f->mean, along = (REAL)f->along;
    const REAL inverse = (REAL)f->inverse;
    const LANES ww = SPREAD(w), ss = SPREAD(sum), mm = SPREAD(mean), aa = SPREAD(along), ii = SPREAD(inverse);
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK, i = 0;
        ROOM(room_g);
        ROOM(room_x);
        const ITEM *g = OPEN(room_g, all_g + at, count), *x = OPEN(room_x, all_x + at, count);
        ITEM *gx = TARGET(room_g, result + at, count);
        for (; i + WIDTH <= count; i += WIDTH)
            NARROW(gx + i, (WIDE(g + i) * ww - ss - (WIDE(x + i) - mm) * aa) * ii);
        for (; i < count; i++)
            gx[i] = WRITE((READ(g[i]) * w - sum - (READ(x[i]) - mean) * along) * inverse);
        CLOSE(result + at, gx, count);
    }
}

static void PLANE(plane_apply_each)(int64_t n, const void *from, double mean, double inverse, const void *w,
                                    const void *bias, void *to)
{
    const STORED *all = from;
    STORED *result = to;
    const REAL m = (REAL)mean, by = (REAL)inverse;
    const LANES mm = SPREAD(m), bb = SPREAD(by);
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK, i = 0;
        ROOM(room);
        const ITEM *x = OPEN(room, all + at, count);
        ITEM *y = TARGET(room, result + at, count);
        const REAL *scale = (const REAL *)w + at, *shift = (const REAL *)bias + at;
        for (; i + WIDTH <= count; i += WIDTH)
            NARROW(y + i, (WIDE(x + i) - mm) * bb * REALS(scale + i) + REALS(shift + i));
        for (; i < count; i++)
            y[i] = WRITE((READ(x[i]) - m) * by * scale[i] + shift[i]);
        CLOSE(result + at, y, count);
    }
}

static void PLANE(plane_combine_each)(int64_t n, const void *gradient, const void *input, const void *w,
                                      const struct ah_plane_gradient *f, void *to)
{
    const STORED *all_g = gradient, *all_x = input;
    STORED *result = to;
    const REAL sum = (REAL)f->sum, mean = (REAL)f->mean, along = (REAL)f->along, inverse = (REAL)f->inverse;
    const LANES ss = SPREAD(sum), mm = SPREAD(mean), aa = SPREAD(along), ii = SPREAD(inverse);
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK, i = 0;
        ROOM(room_g);
        ROOM(room_x);
        const ITEM *g = OPEN(room_g, all_g + at, count), *x = OPEN(room_x, all_x + at, count);
        ITEM *gx = TARGET(room_g, result + at, count);
        const REAL *scale = (const REAL *)w + at;
        for (; i + WIDTH <= count; i += WIDTH)
            NARROW(gx + i, (WIDE(g + i) * REALS(scale + i) - ss - (WIDE(x + i) - mm) * aa) * ii);
        for (; i < count; i++)
            gx[i] = WRITE((READ(g[i]) * scale[i] - sum - (READ(x[i]) - mean) * along) * inverse);
        CLOSE(result + at, gx, count);
    }
}

static const struct ah_plane_loops PLANE(plane_loops) = {PLANE(plane_moments), PLANE(plane_apply), PLANE(plane_sums),
                                                         PLANE(plane_combine), PLANE(plane_apply_each),
                                                         PLANE(plane_combine_each)};

#undef PLANE
#undef REAL
#undef LANES
#undef WIDTH
#undef SPREAD
#undef REALS
#undef ITEM
#undef STORED
#undef READ
#undef WRITE
#undef WIDE
#undef NARROW
#undef ROOM
#undef OPEN
#undef TARGET
#undef CLOSE
