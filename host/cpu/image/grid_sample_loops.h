/* Sampling on a grid for one real type: the tables of up to BLOCK locations, and the reads and additions through them.
 * Loops run over the locations, so that they are vector loops. */

/* Along one axis, for each location: up to four input positions (-1: outside, it counts as 0), their weights, and the
 * weights' derivatives by the coordinate. */
struct SUFFIX(axis) {
    int32_t at[4][BLOCK];
    REAL weight[4][BLOCK], slope[4][BLOCK];
};

/* Into [low, high] / 2 by reflections at both ends; *turn becomes -1 after an odd number of them. */
static REAL SUFFIX(reflected)(REAL x, int64_t low, int64_t high, REAL *turn)
{
    *turn = 0;
    if (low == high)
        return 0;
    REAL least = (REAL)low / 2, span = (REAL)(high - low) / 2;
    *turn = 1;
    x -= least;
    if (x < 0) {
        *turn = -1;
        x = -x;
    }
    if (!(x < (REAL)FARTHEST))
        return 0;
    int64_t flips = (int64_t)(x / span);
    REAL extra = (REAL)fmod((double)x, (double)span);
    if (flips % 2 == 0)
        return extra + least;
    *turn = -*turn;
    return span - extra + least;
}

/* Map a coordinate by the padding mode; *slope is multiplied by the derivative. */
static inline REAL SUFFIX(padded)(const struct ah_sampling *s, REAL x, int64_t n, REAL *slope)
{
    REAL turn, last = (REAL)(n - 1);
    if (s->padding == AH_PADDING_REFLECTION) {
        x = SUFFIX(reflected)(x, s->align_corners ? 0 : -1, s->align_corners ? 2 * (n - 1) : 2 * n - 1, &turn);
        *slope *= turn;
    }
    if (s->padding == AH_PADDING_ZEROS)
        return x;
    *slope = x > 0 && x < last ? *slope : 0;
    return x > 0 ? x < last ? x : last : 0;
}

static inline int32_t SUFFIX(within)(int32_t at, int64_t n)
{
    return at < 0 || at >= n ? -1 : at;
}

static void SUFFIX(cubic_axis)(const struct ah_sampling *s, const REAL *x, const REAL *slope, int64_t n, int count,
                               struct SUFFIX(axis) *axis)
{
    const REAL a = (REAL)-0.75;
    for (int o = 0; o < count; o++) {
        int32_t floor_at = (int32_t)x[o] - (x[o] < (REAL)(int32_t)x[o]);
        REAL t = x[o] - (REAL)floor_at, ignored = 0;
        for (int k = 0; k < 4; k++) {
            REAL sign = k < 2 ? 1 : -1, by = k < 2 ? t : 1 - t;
            if (k == 0 || k == 3) {
                by += 1;
                axis->weight[k][o] = ((a * by - 5 * a) * by + 8 * a) * by - 4 * a;
                axis->slope[k][o] = slope[o] * sign * ((3 * a * by - 10 * a) * by + 8 * a);
            } else {
                axis->weight[k][o] = ((a + 2) * by - (a + 3)) * by * by + 1;
                axis->slope[k][o] = slope[o] * sign * (3 * (a + 2) * by - 2 * (a + 3)) * by;
            }
            axis->at[k][o] = SUFFIX(within)((int32_t)SUFFIX(padded)(s, (REAL)(floor_at + k - 1), n, &ignored), n);
        }
    }
}

/* The taps along an axis of size n for `count` coordinates from -1 to 1 with stride `space`. */
static void SUFFIX(fill_axis)(const struct ah_sampling *s, const REAL *coordinate, int64_t n, int count,
                              struct SUFFIX(axis) *axis)
{
    REAL x[BLOCK], slope[BLOCK], by = s->align_corners ? (REAL)(n - 1) / 2 : (REAL)n / 2;
    for (int o = 0; o < count; o++) {
        REAL at = coordinate[o * s->space] + 1;
        x[o] = s->align_corners ? at / 2 * (REAL)(n - 1) : (at * (REAL)n - 1) / 2;
        slope[o] = by;
    }
    if (s->padding != AH_PADDING_ZEROS && s->mode != AH_SAMPLE_BICUBIC)
        for (int o = 0; o < count; o++)
            x[o] = SUFFIX(padded)(s, x[o], n, &slope[o]);
    for (int o = 0; o < count; o++) /* nan, or beyond all positions */
        x[o] = x[o] > -(REAL)FARTHEST && x[o] < (REAL)FARTHEST ? x[o] : -100;
    if (s->mode == AH_SAMPLE_BICUBIC) {
        SUFFIX(cubic_axis)(s, x, slope, n, count, axis);
    } else if (s->mode == AH_SAMPLE_NEAREST) {
        for (int o = 0; o < count; o++) {
            axis->at[0][o] = SUFFIX(within)((int32_t)RINT(x[o]), n);
            axis->weight[0][o] = 1;
            axis->slope[0][o] = 0;
        }
    } else {
        for (int o = 0; o < count; o++) {
            int32_t floor_at = (int32_t)x[o] - (x[o] < (REAL)(int32_t)x[o]);
            REAL t = x[o] - (REAL)floor_at;
            axis->at[0][o] = SUFFIX(within)(floor_at, n);
            axis->at[1][o] = SUFFIX(within)(floor_at + 1, n);
            axis->weight[0][o] = 1 - t;
            axis->weight[1][o] = t;
            axis->slope[0][o] = -slope[o];
            axis->slope[1][o] = slope[o];
        }
    }
}

/* One corner of `count` locations: its tap along each axis is k[]. */
static void SUFFIX(corner)(const struct ah_sampling *s, const struct SUFFIX(axis) *axis, const int *k, int count,
                           int32_t *restrict at, REAL *restrict weight)
{
    memcpy(at, axis[0].at[k[0]], (size_t)count * sizeof *at);
    memcpy(weight, axis[0].weight[k[0]], (size_t)count * sizeof *weight);
    for (int d = 1; d < s->space; d++) {
        const int32_t *restrict here = axis[d].at[k[d]];
        const REAL *restrict by = axis[d].weight[k[d]];
        int32_t size = (int32_t)s->size[d];
        for (int o = 0; o < count; o++) {
            int32_t place = at[o] * size + here[o];
            at[o] = (at[o] | here[o]) < 0 ? -1 : place;
            weight[o] *= by[o];
        }
    }
}

static void SUFFIX(corner_slopes)(const struct ah_sampling *s, const struct SUFFIX(axis) *axis, const int *k, int count,
                                  REAL *slope, int64_t step)
{
    for (int e = 0; e < s->space; e++) {
        REAL *by = slope + (s->space - 1 - e) * s->corners * step;
        for (int o = 0; o < count; o++)
            by[o] = axis[e].slope[k[e]][o];
        for (int d = 0; d < s->space; d++)
            for (int o = 0; o < count && d != e; o++)
                by[o] *= axis[d].weight[k[d]][o];
    }
}

/* The tables of `count` locations in a plane: place, weight and, unless NULL, slopes by each coordinate of every
 * corner, corners `step` apart. The grid's last coordinate is the first axis. */
static void SUFFIX(tables)(const struct ah_sampling *s, const REAL *grid, int count, int32_t *at, REAL *weight,
                           REAL *slope, int64_t step)
{
    struct SUFFIX(axis) axis[3];
    for (int d = 0; d < s->space; d++)
        SUFFIX(fill_axis)(s, grid + s->space - 1 - d, s->size[d], count, &axis[d]);
    for (int i = 0; i < s->corners; i++) {
        int k[3] = {i % s->taps, i / s->taps % s->taps, i / s->taps / s->taps};
        SUFFIX(corner)(s, axis, k, count, at + i * step, weight + i * step);
        if (slope)
            SUFFIX(corner_slopes)(s, axis, k, count, slope + i * step, step);
    }
}

/* sum += weight * plane[at]. Places outside read the first element, unused: a load on a condition is no vector load. */
static void SUFFIX(add_corner)(const REAL *restrict plane, const int32_t *restrict at, const REAL *restrict weight,
                               int count, REAL *restrict sum)
{
#pragma omp simd
    for (int o = 0; o < count; o++) {
        REAL value = plane[at[o] & ~(at[o] >> 31)] * weight[o];
        sum[o] += at[o] < 0 ? 0 : value;
    }
}

/* y = the value at a place, or the sum of four corners times their weights, as add_corner adds them up. */
static void SUFFIX(read_nearest)(const REAL *restrict plane, const int32_t *restrict at, int count, REAL *restrict y)
{
#pragma omp simd
    for (int o = 0; o < count; o++) {
        REAL value = plane[at[o] & ~(at[o] >> 31)];
        y[o] = at[o] < 0 ? 0 : value;
    }
}

static inline REAL SUFFIX(corner_of)(const REAL *plane, int32_t at, REAL weight)
{
    REAL value = plane[at & ~(at >> 31)] * weight;
    return at < 0 ? 0 : value;
}

static void SUFFIX(read_four)(const REAL *restrict plane, const int32_t *restrict at, const REAL *restrict weight,
                              int count, REAL *restrict y)
{
#pragma omp simd
    for (int o = 0; o < count; o++) {
        REAL sum = SUFFIX(corner_of)(plane, at[o], weight[o]);
        sum += SUFFIX(corner_of)(plane, at[BLOCK + o], weight[BLOCK + o]);
        sum += SUFFIX(corner_of)(plane, at[2 * BLOCK + o], weight[2 * BLOCK + o]);
        y[o] = sum + SUFFIX(corner_of)(plane, at[3 * BLOCK + o], weight[3 * BLOCK + o]);
    }
}

static void SUFFIX(read_corners)(const struct ah_sampling *s, const REAL *plane, const int32_t *at, const REAL *weight,
                                 int count, REAL *y)
{
    REAL sum[BLOCK] = {0};
    if (s->mode == AH_SAMPLE_NEAREST) {
        SUFFIX(read_nearest)(plane, at, count, y);
        return;
    }
    if (s->corners == 4) {
        SUFFIX(read_four)(plane, at, weight, count, y);
        return;
    }
    for (int64_t i = 0; i < s->corners; i++)
        SUFFIX(add_corner)(plane, at + i * BLOCK, weight + i * BLOCK, count, sum);
    memcpy(y, sum, (size_t)count * sizeof *sum);
}

/* The channels of the locations from `first` on: of up to s->group of them, so that a plane is read from beyond the
 * second cache once for all these and not for each block. */
static void SUFFIX(read_group)(const struct ah_sampling *s, const REAL *x, const REAL *grid, REAL *y, int64_t first,
                               int32_t *at, REAL *weight)
{
    int64_t end = first + s->group < s->pixels ? first + s->group : s->pixels;
    for (int64_t o = first; o < end; o += BLOCK)
        SUFFIX(tables)(s, grid + o * s->space, block_size(s, o), at + (o - first) * s->corners,
                       weight + (o - first) * s->corners, NULL, BLOCK);
    for (int64_t c = 0; c < s->c; c++) {
        for (int64_t o = first; o < end; o += BLOCK) {
            int64_t table = (o - first) * s->corners;
            SUFFIX(read_corners)(s, x + c * s->volume, at + table, weight + table, block_size(s, o),
                                 y + c * s->pixels + o);
        }
    }
}

void SUFFIX(ah_sample_read)(const struct ah_sampling *s, const REAL *x, const REAL *grid, REAL *y,
                            struct ah_sample_room *room)
{
    int64_t groups = (s->pixels + s->group - 1) / s->group;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * s->c * s->pixels, AH_SHARE_HEAVY))
    for (int64_t b = 0; b < s->n * groups; b++) {
        int64_t n = b / groups, table = ah_thread_index() * s->corners * s->group;
        SUFFIX(read_group)(s, x + n * s->c * s->volume, grid + n * s->pixels * s->space, y + n * s->c * s->pixels,
                           b % groups * s->group, room->at + table, (REAL *)room->weight + table);
    }
}

/* The gradient of `count` locations of one sample: the value of each corner's weight times the weights' slopes. */
static void SUFFIX(add_grid)(const struct ah_sampling *s, const REAL *g, const REAL *x, const int32_t *at,
                             const REAL *slope, int64_t first, REAL *to)
{
    int count = block_size(s, first);
    REAL by[3][BLOCK] = {{0}};
    for (int64_t i = 0; i < s->corners && s->mode != AH_SAMPLE_NEAREST; i++) {
        REAL worth[BLOCK] = {0};
        const int32_t *place = at + i * s->pixels + first;
        for (int64_t c = 0; c < s->c; c++)
            SUFFIX(add_corner)(x + c * s->volume, place, g + c * s->pixels + first, count, worth);
        for (int d = 0; d < s->space; d++)
            for (int o = 0; o < count; o++)
                by[d][o] += slope[(d * s->corners + i) * s->pixels + first + o] * worth[o];
    }
    for (int o = 0; o < count; o++)
        for (int d = 0; d < s->space; d++)
            to[(first + o) * s->space + d] = by[d][o];
}

/* One sample: its tables are made once, then planes add up their own gradient, and locations sum over the planes. */
static void SUFFIX(add)(const struct ah_sampling *s, const REAL *g, const REAL *x, const REAL *grid, REAL *gx,
                        REAL *ggrid, struct ah_sample_room *room)
{
    int32_t *at = room->at;
    REAL *weight = room->weight, *slope = weight + s->corners * s->pixels;
    int64_t pixels = s->pixels, blocks = (pixels + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->c * pixels, AH_SHARE_HEAVY))
    for (int64_t b = 0; b < blocks; b++) {
        int64_t o = b * BLOCK;
        SUFFIX(tables)(s, grid + o * s->space, block_size(s, o), at + o, weight + o, slope + o, pixels);
        SUFFIX(add_grid)(s, g, x, at, slope, o, ggrid);
    }
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->c * pixels, AH_SHARE_HEAVY))
    for (int64_t c = 0; c < s->c; c++) {
        REAL *plane = gx + c * s->volume;
        memset(plane, 0, (size_t)s->volume * sizeof *plane);
        for (int64_t i = 0; i < s->corners; i++)
            for (int64_t o = 0; o < pixels; o++)
                if (at[i * pixels + o] >= 0)
                    plane[at[i * pixels + o]] += weight[i * pixels + o] * g[c * pixels + o];
    }
}

void SUFFIX(ah_sample_add)(const struct ah_sampling *s, const void *g, const void *x, const void *grid, void *gx,
                           void *ggrid, struct ah_sample_room *room)
{
    for (int64_t n = 0; n < s->n; n++) {
        int64_t planes = n * s->c, coordinates = n * s->pixels * s->space;
        SUFFIX(add)(s, (const REAL *)g + planes * s->pixels, (const REAL *)x + planes * s->volume,
                    (const REAL *)grid + coordinates, (REAL *)gx + planes * s->volume, (REAL *)ggrid + coordinates,
                    room);
    }
}
