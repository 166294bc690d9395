/* The inner loops of folds (reduce_loops.h), one pair for each input type, and their table. */
#include <math.h>
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/elementwise/half_loops.h"
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

#define SUM_ROW(name, LANES)                                                                     \
    AH_ROW_SUM(name##_of, LANES)                                                                 \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        *(double *)acc += name##_of(input, n);                                                   \
    }
SUM_ROW(sum_f32, )
ADD_LOOPS(sum_f64, double, double, x)

#ifdef __AVX512F__
typedef ah_wide_lanes wide_lanes_at __attribute__((aligned(8), may_alias));

/* Sums of halves, widened in registers: as those of float32. */
#define HALF_SUM(half)                                                                           \
    static void sum_##half##_row(void *acc, const void *input, int64_t n, double p)              \
    {                                                                                            \
        const uint16_t *from = input;                                                            \
        ah_wide_lanes wide = {0};                                                                \
        while (n >= 64) {                                                                        \
            int64_t count = n / 64 < 8 ? n / 64 : 8;                                             \
            ah_lanes_f32 a = {0}, b = {0}, c = {0}, d = {0};                                     \
            for (int64_t k = 0; k < count; k++, from += 64) {                                    \
                a += ah_wide_##half(from);                                                       \
                b += ah_wide_##half(from + 16);                                                  \
                c += ah_wide_##half(from + 32);                                                  \
                d += ah_wide_##half(from + 48);                                                  \
            }                                                                                    \
            wide += (ah_widen_sum(a) + ah_widen_sum(b)) + (ah_widen_sum(c) + ah_widen_sum(d));   \
            n -= count * 64;                                                                     \
        }                                                                                        \
        for (; n >= 16; n -= 16, from += 16)                                                     \
            wide += ah_widen_sum(ah_wide_##half(from));                                          \
        uint16_t last[16] = {0};                                                                 \
        memcpy(last, from, (size_t)n * sizeof *last);                                            \
        wide += ah_widen_sum(ah_wide_##half(last));                                              \
        *(double *)acc += ((wide[0] + wide[1]) + (wide[2] + wide[3])) +                          \
                          ((wide[4] + wide[5]) + (wide[6] + wide[7]));                           \
    }                                                                                            \
    static void sum_##half##_column(void *acc, const void *input, int64_t n, int64_t rows,       \
                                    int64_t stride, double p)                                    \
    {                                                                                            \
        double *to = acc;                                                                        \
        const uint16_t *x = input;                                                               \
        for (int64_t count; rows > 0; rows -= count, x += count * stride) {                      \
            count = rows < 8 ? rows : 8;                                                         \
            int64_t i = 0;                                                                       \
            for (; i + 16 <= n; i += 16) {                                                       \
                union {                                                                          \
                    ah_lanes_f32 all;                                                            \
                    ah_half_lanes half[2];                                                       \
                } sum = {ah_wide_##half(x + i)};                                                 \
                for (int64_t r = 1; r < count; r++)                                              \
                    sum.all += ah_wide_##half(x + i + r * stride);                               \
                *(wide_lanes_at *)(to + i) += ah_widen(sum.half[0]);                             \
                *(wide_lanes_at *)(to + i + 8) += ah_widen(sum.half[1]);                         \
            }                                                                                    \
            for (; i < n; i++)                                                                   \
                for (int64_t r = 0; r < count; r++)                                              \
                    to[i] += (double)ah_##half##_to_f32(x[i + r * stride]);                      \
        }                                                                                        \
    }
HALF_SUM(f16)
HALF_SUM(bf16)
#define HALF_ROW(t) {[AH_FOLD_SUM] = {sum_##t##_row, sum_##t##_column}}
#else
#define HALF_ROW(t) {{NULL, NULL}} /* none: such a level converts the tensor */
#endif

typedef int32_t bit_lanes __attribute__((vector_size(64)));

static inline ah_lanes zero_nan(ah_lanes x)
{
    return (ah_lanes)((bit_lanes)x & (bit_lanes)(x == x));
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
    [AH_F16] = HALF_ROW(f16), [AH_BF16] = HALF_ROW(bf16),
};

const struct ah_fold_loops *ah_fold_loops(enum ah_dtype dtype, enum ah_fold fold)
{
    return &loops_of[dtype][fold];
}
