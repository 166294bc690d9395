/* The inner loops of folds (reduce_loops.h), one pair for each input type, and their table. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/elementwise/half_loops.h"
#include "cpu/loop/iterate.h"
#include "cpu/reduce/reduce.h"
#include "cpu/reduce/reduce_loops.h"

FLOAT_FOLDS(f32, float)
FLOAT_FOLDS(f64, double)
EXTREME_F32_COLUMN(max_f32, ah_larger_f32, MAX_STEP)
EXTREME_F32_COLUMN(min_f32, ah_smaller_f32, MIN_STEP)
COLUMN(max_f64, double, double, MAX_STEP(s, x))
COLUMN(min_f64, double, double, MIN_STEP(s, x))
/* Sum columns of float32: eight rows in float32, then double, as in AH_ROW_SUM. */
static void sum_f32_column(void *acc, const void *input, int64_t n, int64_t rows, int64_t stride, double p)
{
    double *restrict to = acc;
    const float *restrict x = input;
    for (; rows >= 8; rows -= 8, x += 8 * stride)
        for (int64_t i = 0; i < n; i++) {
            const float *y = x + i + 4 * stride;
            to[i] += (double)(((x[i] + x[i + stride]) + (x[i + 2 * stride] + x[i + 3 * stride])) +
                              ((y[0] + y[stride]) + (y[2 * stride] + y[3 * stride])));
        }
    for (; rows > 0; rows--, x += stride)
        for (int64_t i = 0; i < n; i++)
            to[i] += (double)x[i];
}

#define SUM_ROW(name, VALUE)                                                                     \
    AH_ROW_SUM(name##_of, float, ah_sum_f32, VALUE)                                              \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        *(double *)acc += name##_of(input, n);                                                   \
    }
SUM_ROW(sum_f32, )
ADD_LOOPS(sum_f64, double, double, x)

static inline ah_lanes_f32 zero_nan(ah_lanes_f32 x)
{
    return (ah_lanes_f32)((ah_lane_ints_f32)x & (x == x));
}

SUM_ROW(nansum_f32, zero_nan)
COLUMN(nansum_f32, float, double, s + (x == x ? x : 0))
ADD_LOOPS(nansum_f64, double, double, x == x ? x : 0)
LANES_F32_ROW(prod_f32, 1, *, x)
COLUMN(prod_f32, float, double, s *x)
LANES_F32_ROW(squares_f32, 0, +, x *x)
COLUMN(squares_f32, float, double, s + x * x)
ADD_LOOPS(squares_f64, double, double, x *x)
STEP_LOOPS(prod_f64, double, double, x, s *x)
INT_FOLDS(u8, uint8_t)
INT_FOLDS(i32, int32_t)
INT_FOLDS(i64, int64_t)
STEP_LOOPS(absmax_f32, float, double, fabs(x), MAX_STEP(s, fabs(x)))
STEP_LOOPS(absmax_f64, double, double, fabs(x), MAX_STEP(s, fabs(x)))
STEP_LOOPS(absmin_f32, float, double, fabs(x), MIN_STEP(s, fabs(x)))
STEP_LOOPS(absmin_f64, double, double, fabs(x), MIN_STEP(s, fabs(x)))

#define PAIR(name) {name##_row, name##_column}

/* Fold halves by the loops of float32, as many numbers at a time as the first-level cache holds. */
enum { PART = 1024 };

static void half_row(const struct ah_fold_loops *wide, enum ah_dtype dtype, void *acc, const uint16_t *from, int64_t n,
                     double p)
{
    float part[PART];
    for (int64_t count; n > 0; n -= count, from += count) {
        count = n < PART ? n : PART;
        ah_cast(count, part, AH_F32, 1, from, dtype, 1);
        wide->row(acc, part, count, p);
    }
}

static void half_column(const struct ah_fold_loops *wide, enum ah_dtype dtype, double *acc, const uint16_t *from,
                        int64_t n, int64_t rows, int64_t stride, double p)
{
    enum { ROWS = 8, WIDTH = PART / ROWS };
    float part[PART];
    for (int64_t high; rows > 0; rows -= high, from += high * stride) {
        high = rows < ROWS ? rows : ROWS;
        for (int64_t i = 0; i < n; i += WIDTH) {
            int64_t width = n - i < WIDTH ? n - i : WIDTH;
            for (int64_t r = 0; r < high; r++)
                ah_cast(width, part + r * WIDTH, AH_F32, 1, from + r * stride + i, dtype, 1);
            wide->column(acc + i, part, width, high, WIDTH, p);
        }
    }
}

#define HALF_COLUMN(name, half, dtype)                                                           \
    static void name##_##half##_column(void *acc, const void *input, int64_t n, int64_t rows,    \
                                       int64_t stride, double p)                                 \
    {                                                                                            \
        static const struct ah_fold_loops wide = PAIR(name##_f32);                               \
        half_column(&wide, dtype, acc, input, n, rows, stride, p);                               \
    }
#define HALF_LOOPS(name, half, dtype)                                                            \
    HALF_COLUMN(name, half, dtype)                                                               \
    static void name##_##half##_row(void *acc, const void *input, int64_t n, double p)           \
    {                                                                                            \
        static const struct ah_fold_loops wide = PAIR(name##_f32);                               \
        half_row(&wide, dtype, acc, input, n, p);                                                \
    }

#ifdef AH_HALF_VECTORS
typedef ah_lanes_f64 lanes_at_f64 __attribute__((aligned(8), may_alias));

/* Sums of halves, widened in registers, as those of float32: of VALUE of each vector. */
#define HALF_FIRST(half)                                                                         \
    static inline void ah_wide_##half##_first(ah_lanes_f32 *x, const uint16_t *from, int64_t n)  \
    {                                                                                            \
        uint16_t first[16] = {0};                                                                \
        memcpy(first, from, (size_t)n * sizeof *first);                                          \
        for (int v = 0; v < AH_SUM_PARTS; v++)                                                   \
            x[v] = ah_wide_##half(first + v * AH_SUM_LANES);                                     \
    }
HALF_FIRST(f16)
HALF_FIRST(bf16)
#define HALF_SUM(name, half, VALUE) AH_ROW_SUM(name##_##half##_of, uint16_t, ah_wide_##half, VALUE)
#define HALF_SUM_LOOPS(name, half, dtype, VALUE)                                                 \
    HALF_SUM(name, half, VALUE)                                                                  \
    static void name##_##half##_column(void *acc, const void *input, int64_t n, int64_t rows,    \
                                       int64_t stride, double p)                                 \
    {                                                                                            \
        static const struct ah_fold_loops wide = PAIR(name##_f32);                               \
        double *to = acc;                                                                        \
        const uint16_t *x = input;                                                               \
        int64_t whole = n & -AH_SUM_LANES;                                                       \
        if (n > whole)                                                                           \
            half_column(&wide, dtype, to + whole, x + whole, n - whole, rows, stride, p);        \
        for (int64_t count; rows > 0; rows -= count, x += count * stride) {                      \
            count = rows < 8 ? rows : 8;                                                         \
            for (int64_t i = 0; i < whole; i += AH_SUM_LANES) {                                  \
                ah_lanes_f32 sum = VALUE(ah_wide_##half(x + i));                                 \
                for (int64_t r = 1; r < count; r++)                                              \
                    sum += VALUE(ah_wide_##half(x + i + r * stride));                            \
                *(lanes_at_f64 *)(to + i) += ah_widen_half(sum, 0);                              \
                *(lanes_at_f64 *)(to + i + AH_SUM_LANES / 2) += ah_widen_half(sum, 1);           \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
    static void name##_##half##_row(void *acc, const void *input, int64_t n, double p)           \
    {                                                                                            \
        *(double *)acc += name##_##half##_of(input, n);                                          \
    }

/* The square of a half is exact in float32; where a sum may have left its range, add in double. */
#define HALF_SQUARES(half, dtype)                                                                \
    HALF_SUM(squares, half, lanes_square)                                                        \
    HALF_COLUMN(squares, half, dtype)                                                            \
    static void squares_##half##_row(void *acc, const void *input, int64_t n, double p)          \
    {                                                                                            \
        static const struct ah_fold_loops wide = PAIR(squares_f32);                              \
        double sum = squares_##half##_of(input, n);                                              \
        if (sum > 0x1p-80 && sum < 0x1p120)                                                      \
            *(double *)acc += sum;                                                               \
        else                                                                                     \
            half_row(&wide, dtype, acc, input, n, p);                                            \
    }

static inline ah_lanes_f32 lanes_square(ah_lanes_f32 x)
{
    return x * x;
}
#else
#define HALF_SUM_LOOPS(name, half, dtype, VALUE) HALF_LOOPS(name, half, dtype)
#define HALF_SQUARES(half, dtype) HALF_LOOPS(squares, half, dtype)
#endif

/* Integers in the order of the halves: 0x8000 to 0xffff are turned over. */
static inline int16_t half_key(uint16_t bits)
{
    int16_t key = (int16_t)bits;
    return (int16_t)(key ^ (key >> 15 & 0x7fff));
}

enum { KEYS = 64 };

static inline void half_keys_join(const uint16_t *from, int16_t *restrict low, int16_t *restrict high)
{
    for (int k = 0; k < KEYS; k++) {
        int16_t key = half_key(from[k]);
        low[k] = key < low[k] ? key : low[k];
        high[k] = key > high[k] ? key : high[k];
    }
}

/* Find the keys of the smallest and of the largest of n >= 1 halves; a NaN is beyond an infinity. */
static void half_extremes(const uint16_t *from, int64_t n, int16_t *least, int16_t *most)
{
    int16_t low[KEYS], high[KEYS], first = half_key(from[0]), few = n < KEYS ? (int16_t)n : 0;
    for (int k = 0; k < KEYS; k++)
        low[k] = high[k] = first;
    for (int64_t i = 0; i + KEYS <= n; i += KEYS)
        half_keys_join(from + i, low, high);
    if (!few) /* the last ones overlap those before */
        half_keys_join(from + n - KEYS, low, high);
    for (int k = 0; k < few; k++)
        low[k] = high[k] = half_key(from[k]);
    int16_t down = first, up = first;
    for (int k = 0; k < KEYS; k++) {
        down = low[k] < down ? low[k] : down;
        up = high[k] > up ? high[k] : up;
    }
    *least = down;
    *most = up;
}

#define HALF_EXTREME(name, half, dtype, infinity, end, STEP)                                     \
    HALF_COLUMN(name, half, dtype)                                                               \
    static void name##_##half##_row(void *acc, const void *input, int64_t n, double p)           \
    {                                                                                            \
        int16_t least, most;                                                                     \
        if (n == 0)                                                                              \
            return;                                                                              \
        half_extremes(input, n, &least, &most);                                                  \
        bool nan = most > (infinity) || least < ~(infinity);                                     \
        float number = ah_half_to_f32((uint16_t)half_key((uint16_t)(end)), dtype);               \
        double s = *(double *)acc, x = nan ? __builtin_nan("") : (double)number;                 \
        *(double *)acc = STEP(s, x);                                                             \
    }
#define HALF_FOLDS(half, dtype, infinity)                                                        \
    HALF_SUM_LOOPS(sum, half, dtype, )                                                           \
    HALF_SUM_LOOPS(nansum, half, dtype, zero_nan)                                  \
    HALF_SQUARES(half, dtype)                                                                    \
    HALF_LOOPS(prod, half, dtype)                                                                \
    HALF_LOOPS(count, half, dtype)                                                               \
    HALF_LOOPS(abs, half, dtype)                                                                 \
    HALF_LOOPS(powers, half, dtype)                                                              \
    HALF_LOOPS(absmax, half, dtype)                                                              \
    HALF_LOOPS(absmin, half, dtype)                                                              \
    HALF_EXTREME(max, half, dtype, infinity, most, MAX_STEP)                                     \
    HALF_EXTREME(min, half, dtype, infinity, least, MIN_STEP)

HALF_FOLDS(f16, AH_F16, 0x7c00)
HALF_FOLDS(bf16, AH_BF16, 0x7f80)

#define INT_ROW(t)                                                                                            \
    {[AH_FOLD_SUM] = PAIR(sum_##t), [AH_FOLD_PROD] = PAIR(prod_##t), [AH_FOLD_MAX] = PAIR(max_##t),            \
     [AH_FOLD_MIN] = PAIR(min_##t), [AH_FOLD_COUNT] = PAIR(count_##t), [AH_FOLD_NANSUM] = PAIR(sum_##t)}
#define FLOAT_ROW(t)                                                                                          \
    {[AH_FOLD_SUM] = PAIR(sum_##t),         [AH_FOLD_PROD] = PAIR(prod_##t),     [AH_FOLD_MAX] = PAIR(max_##t), \
     [AH_FOLD_MIN] = PAIR(min_##t),         [AH_FOLD_COUNT] = PAIR(count_##t),   [AH_FOLD_ABS] = PAIR(abs_##t), \
     [AH_FOLD_SQUARES] = PAIR(squares_##t), [AH_FOLD_POWERS] = PAIR(powers_##t),                               \
     [AH_FOLD_ABS_MAX] = PAIR(absmax_##t),  [AH_FOLD_ABS_MIN] = PAIR(absmin_##t),                             \
     [AH_FOLD_NANSUM] = PAIR(nansum_##t)}

static const struct ah_fold_loops loops_of[AH_DTYPE_COUNT][AH_FOLD_ABS_MIN + 1] = {
    [AH_BOOL] = INT_ROW(u8), [AH_U8] = INT_ROW(u8),     [AH_I32] = INT_ROW(i32),
    [AH_I64] = INT_ROW(i64), [AH_F32] = FLOAT_ROW(f32), [AH_F64] = FLOAT_ROW(f64),
    [AH_F16] = FLOAT_ROW(f16), [AH_BF16] = FLOAT_ROW(bf16),
};

const struct ah_fold_loops *ah_fold_loops(enum ah_dtype dtype, enum ah_fold fold)
{
    return &loops_of[dtype][fold];
}
