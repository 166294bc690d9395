/* Pooling kernels: maxima of float32 and halves in channels-last order many channels at a time (pool_last_loops.h),
 * everything else plane by plane (pool_loops.h). Windows are walked only inside the input, so their cost is that of the
 * covered elements. Byte places, and with them `struct taps`, are for windows that fit (ah_window_fits_byte). */
#include "cpu/image/pool.h"

#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "cpu/loop/lanes.h"
#include "cpu/loop/row_sum.h"
#include "tensor/transpose.h"

struct rectangle {
    int64_t y0, y1, x0, x1, divisor;
};

static int64_t pool_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The taps of a window that are inside the input, along one dim: a window may be far larger than the input. */
struct reach {
    int64_t first, end;
};

static struct reach reach_of(int64_t start, int64_t kernel, int64_t dilation, int64_t n)
{
    struct reach r = {start < 0 ? (-start + dilation - 1) / dilation : 0, kernel};
    if (start + (kernel - 1) * dilation >= n)
        r.end = start < n ? (n - start + dilation - 1) / dilation : 0;
    return r;
}

static struct rectangle rectangle_at(const struct ah_window *s, const struct ah_rectangles *r, int64_t oy, int64_t ox)
{
    struct rectangle a;
    if (r->adaptive) {
        a.y0 = oy * s->h / s->oh;
        a.y1 = ((oy + 1) * s->h + s->oh - 1) / s->oh;
        a.x0 = ox * s->w / s->ow;
        a.x1 = ((ox + 1) * s->w + s->ow - 1) / s->ow;
        a.divisor = (a.y1 - a.y0) * (a.x1 - a.x0);
        return a;
    }
    a.y0 = oy * s->stride[0] - s->padding[0];
    a.x0 = ox * s->stride[1] - s->padding[1];
    a.y1 = pool_least(a.y0 + s->kernel[0], s->h + s->padding[0]);
    a.x1 = pool_least(a.x0 + s->kernel[1], s->w + s->padding[1]);
    int64_t padded = (a.y1 - a.y0) * (a.x1 - a.x0);
    a.y0 = a.y0 < 0 ? 0 : a.y0;
    a.x0 = a.x0 < 0 ? 0 : a.x0;
    a.y1 = pool_least(a.y1, s->h);
    a.x1 = pool_least(a.x1, s->w);
    a.divisor = r->divisor ? r->divisor : r->count_padding ? padded : (a.y1 - a.y0) * (a.x1 - a.x0);
    return a;
}

/* The outputs of a row whose windows are inside the input along it; none where rectangles vary or windows are wide. */
static struct reach means_inside(const struct ah_window *s, const struct ah_rectangles *r)
{
    if (r->adaptive || s->kernel[1] >= 16 || s->kernel[1] >= s->w)
        return (struct reach){0, 0};
    int64_t first = (s->padding[1] + s->stride[1] - 1) / s->stride[1];
    return (struct reach){first, pool_least(s->ow, (s->w + s->padding[1] - s->kernel[1]) / s->stride[1] + 1)};
}

AH_ROW_SUM(sum_of_f32, float, ah_sum_f32, )

static double sum_of_f64(const double *x, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

#define LOOPS "cpu/image/pool_loops.h"
#include "cpu/loop/for_reals.h"

/* Maximum, channels-last. */

/* A vector of channels at a time: the compiler alone vectorises over the window, by gathers, and it compares vectors
 * that are wider than the level's number by number. */
typedef int16_t shorts __attribute__((vector_size(AH_LANES_BYTES)));
typedef uint8_t bytes __attribute__((vector_size(AH_LANES_BYTES / 4)));
typedef uint8_t many_bytes __attribute__((vector_size(AH_LANES_BYTES / 2)));

/* The positions of one window that are inside the input: the offset of each from the image's start, and its code. Only
 * for windows whose codes fit a byte. */
struct taps {
    int count;
    int64_t offset[AH_BYTE_PLACES];
    uint8_t code[AH_BYTE_PLACES];
};

/* Is the window that begins at (top, left) inside the input as a whole? Then its taps are those of any other. */
static inline bool is_inside(const struct ah_window *s, int64_t top, int64_t left)
{
    return top >= 0 && left >= 0 && top + (s->kernel[0] - 1) * s->dilation[0] < s->h &&
           left + (s->kernel[1] - 1) * s->dilation[1] < s->w;
}

static void taps_at(const struct ah_window *s, int64_t top, int64_t left, struct taps *taps)
{
    struct reach rows = reach_of(top, s->kernel[0], s->dilation[0], s->h);
    struct reach columns = reach_of(left, s->kernel[1], s->dilation[1], s->w);
    taps->count = 0;
    for (int64_t i = rows.first; i < rows.end; i++) {
        for (int64_t j = columns.first; j < columns.end; j++) {
            int64_t iy = top + i * s->dilation[0], ix = left + j * s->dilation[1];
            taps->offset[taps->count] = (iy * s->w + ix) * s->c;
            taps->code[taps->count++] = (uint8_t)(i * s->kernel[1] + j);
        }
    }
}

bool ah_window_is_apart(const struct ah_window *s)
{
    return s->dilation[0] == 1 && s->dilation[1] == 1 && s->stride[0] >= s->kernel[0] && s->stride[1] >= s->kernel[1];
}

/* Report whether every position is in exactly one window. */
static bool pool_covers(const struct ah_window *s)
{
    return ah_window_is_apart(s) && s->stride[0] == s->kernel[0] && s->stride[1] == s->kernel[1] &&
           s->oh * s->stride[0] - s->padding[0] >= s->h && s->ow * s->stride[1] - s->padding[1] >= s->w;
}

#define ITEM float
#define ITEMS ah_lanes_f32
#define MASKS ah_lane_ints_f32
#define CODES bytes
#define LANES (AH_LANES_BYTES / 4)
#define LAST(name) name##_f32
#define LAST_KEY(x, infinity) (x)
#define LAST_KEYS(x, infinity) (x)
#define LAST_NAN(key) ((key) != (key))
#define LAST_LEAST(infinity) (-(infinity))
#define LAST_TRANSPOSE ah_transpose_f32
#include "cpu/image/pool_last_loops.h"

/* Return the integer by which a half is compared: -x for a negative number whose other bits are x, so that both zeros
 * are equal, and the largest one for NaN. */
static inline int16_t pool_half_key(int16_t bits, int16_t infinity)
{
    int16_t sign = (int16_t)(bits >> 15), size = bits & INT16_MAX;
    return size > infinity ? INT16_MAX : (int16_t)((size ^ sign) - sign);
}

static inline shorts pool_half_keys(shorts bits, int16_t infinity)
{
    shorts sign = bits >> 15, size = bits & INT16_MAX, nan = size > infinity;
    return (((size ^ sign) - sign) & ~nan) | (nan & INT16_MAX);
}

#define ITEM int16_t
#define ITEMS shorts
#define MASKS shorts
#define CODES many_bytes
#define LANES (AH_LANES_BYTES / 2)
#define LAST(name) name##_16
#define LAST_KEY pool_half_key
#define LAST_KEYS pool_half_keys
#define LAST_NAN(key) ((key) == INT16_MAX)
#define LAST_LEAST(infinity) ((int16_t)((infinity) | INT16_MIN))
#define LAST_TRANSPOSE ah_transpose_16
#include "cpu/image/pool_last_loops.h"
