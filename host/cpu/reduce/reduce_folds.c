/* The inner loops of folds (reduce_loops.h), one pair for each input type, and their table. */
#include <math.h>

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

#define SUM_ROW(name, LANES, expr)                                                               \
    AH_ROW_SUM(name##_of, LANES, expr)                                                           \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        *(double *)acc += name##_of(input, n);                                                   \
    }
SUM_ROW(sum_f32, , x)
ADD_LOOPS(sum_f64, double, double, x)
typedef int32_t bit_lanes __attribute__((vector_size(64)));

static inline ah_lanes zero_nan(ah_lanes x)
{
    return (ah_lanes)((bit_lanes)x & (bit_lanes)(x == x));
}

SUM_ROW(nansum_f32, zero_nan, x == x ? x : 0)
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
};

const struct ah_fold_loops *ah_fold_loops(enum ah_dtype dtype, enum ah_fold fold)
{
    return &loops_of[dtype][fold];
}
