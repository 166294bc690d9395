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
    REAL total = n < WIDTH ? 0 : PLANE(plane_total)((sum[0] + sum[1]) + (sum[2] + sum[3]));
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
    REAL total = n < WIDTH ? 0 : PLANE(plane_total)((sum[0] + sum[1]) + (sum[2] + sum[3]));
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

/* y = (x - mean) scale + shift, or, where items have their own (`each`), (x - mean) scale w + bias. */
static inline void PLANE(plane_apply_by)(int64_t n, const STORED *all, double mean, double scale, double shift,
                                         bool each, const REAL *w, const REAL *bias, STORED *result)
{
    const REAL m = (REAL)mean, s = (REAL)scale, t = (REAL)shift;
    const LANES mm = SPREAD(m), ss = SPREAD(s), tt = SPREAD(t);
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK, i = 0;
        ROOM(room);
        const ITEM *x = OPEN(room, all + at, count);
        ITEM *y = TARGET(room, result + at, count);
        for (; i + WIDTH <= count; i += WIDTH) {
            LANES v = (WIDE(x + i) - mm) * ss;
            NARROW(y + i, each ? v * REALS(w + at + i) + REALS(bias + at + i) : v + tt);
        }
        for (; i < count; i++) {
            REAL v = (READ(x[i]) - m) * s;
            y[i] = WRITE(each ? v * w[at + i] + bias[at + i] : v + t);
        }
        CLOSE(result + at, y, count);
    }
}

static void PLANE(plane_apply)(int64_t n, const void *x, double mean, double scale, double shift, void *y)
{
    PLANE(plane_apply_by)(n, x, mean, scale, shift, false, NULL, NULL, y);
}

/* Add up g and g (x - mean), with g scaled by each item's w (NULL: by 1). */
static inline void PLANE(plane_chunk_sums)(int64_t n, const ITEM *g, const ITEM *x, const REAL *w, REAL mean,
                                           double *sum_g, double *sum_gx)
{
    LANES sum[2] = {{0}}, product[2] = {{0}}, m = SPREAD(mean);
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        for (int k = 0; k < 2; k++) {
            LANES gradient = WIDE(g + i + k * WIDTH);
            gradient = w ? gradient * REALS(w + i + k * WIDTH) : gradient;
            sum[k] += gradient;
            product[k] += gradient * (WIDE(x + i + k * WIDTH) - m);
        }
    }
    for (; i + WIDTH <= n; i += WIDTH) {
        LANES gradient = WIDE(g + i);
        gradient = w ? gradient * REALS(w + i) : gradient;
        sum[0] += gradient;
        product[0] += gradient * (WIDE(x + i) - m);
    }
    REAL total = 0, along = 0;
    if (n >= WIDTH) {
        total = PLANE(plane_total)(sum[0] + sum[1]);
        along = PLANE(plane_total)(product[0] + product[1]);
    }
    for (; i < n; i++) {
        REAL gradient = w ? READ(g[i]) * w[i] : READ(g[i]);
        total += gradient;
        along += gradient * (READ(x[i]) - mean);
    }
    *sum_g += (double)total;
    *sum_gx += (double)along;
}

static inline void PLANE(plane_sums_by)(int64_t n, const STORED *all_g, const STORED *all_x, const REAL *w, double mean,
                                        double *sum_g, double *sum_gx)
{
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK;
        ROOM(room_g);
        ROOM(room_x);
        const ITEM *g = OPEN(room_g, all_g + at, count), *x = OPEN(room_x, all_x + at, count);
        PLANE(plane_chunk_sums)(count, g, x, w ? w + at : NULL, (REAL)mean, sum_g, sum_gx);
    }
}

static void PLANE(plane_sums)(int64_t n, const void *g, const void *x, double mean, double *sum_g, double *sum_gx)
{
    PLANE(plane_sums_by)(n, g, x, NULL, mean, sum_g, sum_gx);
}

/* The gradient, with the w of the plane, or of each item. */
static inline void PLANE(plane_combine_by)(int64_t n, const STORED *all_g, const STORED *all_x, const REAL *each,
                                           const struct ah_plane_gradient *f, STORED *result)
{
    const REAL w = (REAL)f->w, sum = (REAL)f->sum, mean = (REAL)f->mean, along = (REAL)f->along;
    const REAL inverse = (REAL)f->inverse;
    const LANES ww = SPREAD(w), ss = SPREAD(sum), mm = SPREAD(mean), aa = SPREAD(along), ii = SPREAD(inverse);
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK, i = 0;
        ROOM(room_g);
        ROOM(room_x);
        const ITEM *g = OPEN(room_g, all_g + at, count), *x = OPEN(room_x, all_x + at, count);
        ITEM *gx = TARGET(room_g, result + at, count);
        for (; i + WIDTH <= count; i += WIDTH) {
            LANES gradient = WIDE(g + i);
            gradient *= each ? (LANES)REALS(each + at + i) : ww;
            NARROW(gx + i, (gradient - ss - (WIDE(x + i) - mm) * aa) * ii);
        }
        for (; i < count; i++) {
            REAL gradient = READ(g[i]) * (each ? each[at + i] : w);
            gx[i] = WRITE((gradient - sum - (READ(x[i]) - mean) * along) * inverse);
        }
        CLOSE(result + at, gx, count);
    }
}

static void PLANE(plane_combine)(int64_t n, const void *g, const void *x, const struct ah_plane_gradient *f, void *gx)
{
    PLANE(plane_combine_by)(n, g, x, NULL, f, gx);
}

/* Groups. */

static inline const REAL *PLANE(plane_group_factors)(const struct ah_plane_groups *p, const void *factors, int64_t i)
{
    return factors ? (const REAL *)factors + i % p->groups * p->n : NULL;
}

static void PLANE(plane_group_moments)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *from)
{
    const STORED *x = from;
    for (int64_t i = first; i < end; i++) {
        struct ah_moments m = PLANE(plane_moments)(p->n, x + i * p->n);
        p->mean[i] = m.mean;
        p->inverse[i] = m.squares;
    }
}

static void PLANE(plane_group_apply)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *from,
                                     void *to)
{
    const STORED *x = from;
    STORED *y = to;
    for (int64_t i = first; i < end; i++) {
        const REAL *w = PLANE(plane_group_factors)(p, p->w, i), *bias = PLANE(plane_group_factors)(p, p->bias, i);
        if (w)
            PLANE(plane_apply_by)(p->n, x + i * p->n, p->mean[i], p->inverse[i], 0, true, w, bias, y + i * p->n);
        else
            PLANE(plane_apply_by)(p->n, x + i * p->n, p->mean[i], p->inverse[i], 0, false, NULL, NULL, y + i * p->n);
    }
}

static void PLANE(plane_group_sums)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *gradient,
                                    const void *input, struct ah_plane_gradient *f)
{
    const STORED *g = gradient, *x = input;
    for (int64_t i = first; i < end; i++) {
        const REAL *w = PLANE(plane_group_factors)(p, p->w, i);
        double sum = 0, along = 0;
        if (w)
            PLANE(plane_sums_by)(p->n, g + i * p->n, x + i * p->n, w, p->mean[i], &sum, &along);
        else
            PLANE(plane_sums_by)(p->n, g + i * p->n, x + i * p->n, NULL, p->mean[i], &sum, &along);
        f[i - first] = (struct ah_plane_gradient){1, sum, p->mean[i], along, p->inverse[i]};
    }
}

static void PLANE(plane_group_combine)(const struct ah_plane_groups *p, int64_t first, int64_t end,
                                       const void *gradient, const void *input, const struct ah_plane_gradient *f,
                                       void *to)
{
    const STORED *g = gradient, *x = input;
    STORED *gx = to;
    for (int64_t i = first; i < end; i++) {
        const REAL *w = PLANE(plane_group_factors)(p, p->w, i);
        if (w)
            PLANE(plane_combine_by)(p->n, g + i * p->n, x + i * p->n, w, &f[i - first], gx + i * p->n);
        else
            PLANE(plane_combine_by)(p->n, g + i * p->n, x + i * p->n, NULL, &f[i - first], gx + i * p->n);
    }
}

static void PLANE(plane_group_channels)(const struct ah_plane_groups *p, int64_t first, int64_t end,
                                        const void *gradient, const void *input, void *weight, void *bias)
{
    for (int64_t i = first; i < end; i++) {
        const STORED *all_g = (const STORED *)gradient + i * p->n, *all_x = (const STORED *)input + i * p->n;
        REAL *gw = (REAL *)weight + i % p->groups * p->n, *gb = (REAL *)bias + i % p->groups * p->n;
        const REAL mean = (REAL)p->mean[i], inverse = (REAL)p->inverse[i];
        for (int64_t at = 0; at < p->n; at += CHUNK) {
            int64_t count = p->n - at < CHUNK ? p->n - at : CHUNK;
            ROOM(room_g);
            ROOM(room_x);
            const ITEM *g = OPEN(room_g, all_g + at, count), *x = OPEN(room_x, all_x + at, count);
            for (int64_t k = 0; k < count; k++) {
                gw[at + k] += READ(g[k]) * ((READ(x[k]) - mean) * inverse);
                gb[at + k] += READ(g[k]);
            }
        }
    }
}

static const struct ah_plane_loops PLANE(plane_loops) = {
    PLANE(plane_moments), PLANE(plane_apply), PLANE(plane_sums), PLANE(plane_combine),
    PLANE(plane_group_moments), PLANE(plane_group_apply), PLANE(plane_group_sums), PLANE(plane_group_combine),
    PLANE(plane_group_channels)};

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
