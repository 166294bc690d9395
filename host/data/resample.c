/* An axis is a list of weighted stretches of the input, one for each output position. */
#include "data/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

struct axis {
    int64_t in, out, widest;
    int64_t *first, *count; /* of each output position */
    double *weight;         /* widest for each */
    int32_t *whole;         /* the same times 2^bits */
    int bits;
};

static void close_axis(struct axis *axis)
{
    free(axis->first);
    free(axis->count);
    free(axis->weight);
    free(axis->whole);
}

static double resample_triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double resample_cubic(double x, double a)
{
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double resample_sinc(double x)
{
    x *= M_PI;
    return x == 0 ? 1 : sin(x) / x;
}

/* The weight of a pixel at a distance from the middle, of the modes that sum over an area. */
static double resample_weight(enum ah_resample_mode mode, double x)
{
    switch (mode) {
    case AH_RESAMPLE_BICUBIC:
        return resample_cubic(x, -0.5);
    case AH_RESAMPLE_LANCZOS:
        return x >= -3 && x < 3 ? resample_sinc(x) * resample_sinc(x / 3) : 0;
    case AH_RESAMPLE_BOX:
        return x > -0.5 && x <= 0.5 ? 1 : 0;
    case AH_RESAMPLE_HAMMING:
        return fabs(x) < 1 ? resample_sinc(x) * (0.54 + 0.46 * cos(M_PI * x)) : 0;
    default:
        return resample_triangle(x);
    }
}

static double resample_reach(enum ah_resample_mode mode)
{
    switch (mode) {
    case AH_RESAMPLE_BICUBIC:
        return 2;
    case AH_RESAMPLE_LANCZOS:
        return 3;
    case AH_RESAMPLE_BOX:
        return 0.5;
    default:
        return 1;
    }
}

static void resample_nearest(struct axis *axis, bool exact)
{
    double scale = (double)axis->in / (double)axis->out;
    for (int64_t i = 0; i < axis->out; i++) {
        int64_t at = (int64_t)floor(((double)i + (exact ? 0.5 : 0)) * scale);
        axis->first[i] = at < axis->in ? at : axis->in - 1;
        axis->count[i] = 1;
        axis->weight[i * axis->widest] = 1;
    }
}

/* Neighbours around the place, whatever the scale; places beyond the border count as the border. */
static void resample_neighbours(struct axis *axis, int reach)
{
    double scale = (double)axis->in / (double)axis->out;
    for (int64_t i = 0; i < axis->out; i++) {
        double place = ((double)i + 0.5) * scale - 0.5;
        if (reach == 1 && place < 0)
            place = 0;
        int64_t at = (int64_t)floor(place);
        if (at > axis->in - 1)
            at = axis->in - 1;
        double rest = place - (double)at;
        if (rest > 1)
            rest = 1;
        int64_t low = at - reach + 1, high = at + reach;
        int64_t first = low < 0 ? 0 : low, last = high > axis->in - 1 ? axis->in - 1 : high;
        double *weight = axis->weight + i * axis->widest;
        axis->first[i] = first;
        axis->count[i] = last - first + 1;
        for (int64_t j = low; j <= high; j++) {
            int64_t to = j < first ? first : j > last ? last : j;
            double x = (double)(j - at) - rest;
            weight[to - first] += reach == 1 ? resample_triangle(x) : resample_cubic(x, -0.75);
        }
    }
}

static void resample_area(struct axis *axis, enum ah_resample_mode mode)
{
    double scale = (double)axis->in / (double)axis->out, stretch = scale > 1 ? scale : 1;
    double support = resample_reach(mode) * stretch;
    for (int64_t i = 0; i < axis->out; i++) {
        double center = scale * ((double)i + 0.5), total = 0;
        int64_t low = (int64_t)(center - support + 0.5), high = (int64_t)(center + support + 0.5);
        int64_t first = low < 0 ? 0 : low, count = (high > axis->in ? axis->in : high) - first;
        double *weight = axis->weight + i * axis->widest;
        count = count > axis->widest ? axis->widest : count;
        for (int64_t j = 0; j < count; j++) {
            double x = ((double)(first + j) - center + 0.5) / stretch;
            weight[j] = resample_weight(mode, x);
            total += weight[j];
        }
        for (int64_t j = 0; total != 0 && j < count; j++)
            weight[j] /= total;
        axis->first[i] = first;
        axis->count[i] = count;
    }
}

enum { RESAMPLE_BITS = 22 };

/* The weights as 16-bit numbers, with as many bits as the largest allows; of box and hamming with all bits. */
static void make_whole(struct axis *axis, enum ah_resample_mode mode)
{
    double most = 0;
    for (int64_t i = 0; i < axis->out * axis->widest; i++)
        most = axis->weight[i] > most ? axis->weight[i] : most;
    if (mode >= AH_RESAMPLE_BOX)
        axis->bits = RESAMPLE_BITS;
    while (axis->bits < RESAMPLE_BITS && (int)(0.5 + most * (double)(1 << (axis->bits + 1))) < 1 << 15)
        axis->bits++;
    for (int64_t i = 0; i < axis->out * axis->widest; i++)
        axis->whole[i] = (int32_t)lround(axis->weight[i] * (double)(1 << axis->bits));
}

static int open_axis(struct axis *axis, int64_t in, int64_t out, enum ah_resample_mode mode, bool antialias)
{
    int reach = mode == AH_RESAMPLE_BICUBIC ? 2 : 1;
    double scale = (double)in / (double)out;
    bool sums = antialias && mode >= AH_RESAMPLE_BILINEAR;
    *axis = (struct axis){.in = in, .out = out, .widest = 2 * reach};
    if (sums)
        axis->widest = (int64_t)ceil(resample_reach(mode) * (scale > 1 ? scale : 1)) * 2 + 1;
    axis->first = malloc((size_t)out * sizeof *axis->first);
    axis->count = malloc((size_t)out * sizeof *axis->count);
    axis->weight = calloc((size_t)(out * axis->widest), sizeof *axis->weight);
    axis->whole = calloc((size_t)(out * axis->widest), sizeof *axis->whole);
    if (!axis->first || !axis->count || !axis->weight || !axis->whole)
        return ah_fail(AH_ENOMEM, "out of memory");
    if (mode <= AH_RESAMPLE_NEAREST_EXACT)
        resample_nearest(axis, mode == AH_RESAMPLE_NEAREST_EXACT);
    else if (sums)
        resample_area(axis, mode);
    else
        resample_neighbours(axis, reach);
    make_whole(axis, mode);
    return 0;
}

/* Lines of axis->in elements `step` apart, whose first elements are `line` apart; the result alike. */
struct lines {
    int64_t count, step, line, out_line;
};

static void sum_bytes(const struct axis *axis, const uint8_t *from, uint8_t *to, struct lines lines)
{
    for (int64_t i = 0; i < axis->out; i++) {
        const int32_t *weight = axis->whole + i * axis->widest;
        const uint8_t *start = from + axis->first[i] * lines.step;
        for (int64_t l = 0; l < lines.count; l++) {
            int32_t sum = axis->bits ? 1 << (axis->bits - 1) : 0;
            for (int64_t j = 0; j < axis->count[i]; j++)
                sum += weight[j] * start[l * lines.line + j * lines.step];
            sum >>= axis->bits;
            to[l * lines.out_line + i * lines.step] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
        }
    }
}

#define SUM_REALS(name, type)                                                                            \
    static void name(const struct axis *axis, const type *from, type *to, struct lines lines)            \
    {                                                                                                     \
        for (int64_t i = 0; i < axis->out; i++) {                                                         \
            const double *weight = axis->weight + i * axis->widest;                                       \
            const type *start = from + axis->first[i] * lines.step;                                       \
            for (int64_t l = 0; l < lines.count; l++) {                                                   \
                type sum = 0;                                                                             \
                for (int64_t j = 0; j < axis->count[i]; j++)                                              \
                    sum += (type)weight[j] * start[l * lines.line + j * lines.step];                      \
                to[l * lines.out_line + i * lines.step] = sum;                                            \
            }                                                                                             \
        }                                                                                                 \
    }
SUM_REALS(sum_floats, float)
SUM_REALS(sum_doubles, double)

static void resample_sum(enum ah_dtype dtype, const struct axis *axis, const void *from, void *to, struct lines lines)
{
    if (dtype == AH_U8)
        sum_bytes(axis, from, to, lines);
    else if (dtype == AH_F32)
        sum_floats(axis, from, to, lines);
    else
        sum_doubles(axis, from, to, lines);
}

/* Each plane: columns first, into `between`, then rows. */
static void resample_fill(struct ah_tensor *out, const struct ah_tensor *image, const struct axis *axes, char *between)
{
    size_t item = ah_dtype_size(image->dtype);
    const struct axis *rows = &axes[0], *columns = &axes[1];
    int64_t planes = out->numel > 0 ? out->numel / (rows->out * columns->out) : 0;
    for (int64_t p = 0; p < planes; p++) {
        const char *from = (const char *)ah_tensor_data((struct ah_tensor *)image) +
                           (size_t)(p * rows->in * columns->in) * item;
        char *to = (char *)ah_tensor_data(out) + (size_t)(p * rows->out * columns->out) * item;
        resample_sum(image->dtype, columns, from, between, (struct lines){rows->in, 1, columns->in, columns->out});
        resample_sum(image->dtype, rows, between, to, (struct lines){columns->out, columns->out, 1, 1});
    }
}

int ah_resample(struct ah_tensor **out, const struct ah_tensor *image, int64_t rows, int64_t columns,
                enum ah_resample_mode mode, bool antialias)
{
    int64_t in_rows = image->size[image->ndim - 2], in_columns = image->size[image->ndim - 1];
    int64_t size[AH_MAX_DIMS];
    struct axis axes[2] = {{0}};
    struct ah_tensor *made = NULL;
    char *between = NULL;
    int status = 0;
    if (in_rows < 1 || in_columns < 1 || rows < 1 || columns < 1)
        return ah_fail(AH_EINVAL, "expected at least one pixel, got %s to %lld x %lld", ah_shape(image),
                       (long long)rows, (long long)columns);
    if (mode >= AH_RESAMPLE_LANCZOS && !antialias)
        return ah_fail(AH_EINVAL, "antialias: lanczos, box and hamming require true");
    memcpy(size, image->size, (size_t)image->ndim * sizeof *size);
    size[image->ndim - 2] = rows;
    size[image->ndim - 1] = columns;
    AH_TRYGO(open_axis(&axes[0], in_rows, rows, mode, antialias), done);
    AH_TRYGO(open_axis(&axes[1], in_columns, columns, mode, antialias), done);
    between = malloc((size_t)(in_rows * columns) * ah_dtype_size(image->dtype));
    if (!between) {
        status = ah_fail(AH_ENOMEM, "out of memory");
        goto done;
    }
    AH_TRYGO(ah_tensor_empty(&made, size, image->ndim, image->dtype, &ah_cpu), done);
    resample_fill(made, image, axes, between);
    *out = made;
done:
    close_axis(&axes[0]);
    close_axis(&axes[1]);
    free(between);
    return status;
}
