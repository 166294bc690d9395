/* The inner loops of a fold (struct ah_fold_loops) for one input type and one accumulator type. */
#ifndef AH_CPU_REDUCE_LOOPS_H
#define AH_CPU_REDUCE_LOOPS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/loop/lanes.h"

/* The column of a fold: `step` makes a new accumulator of s and x. Four rows at a time, so that an accumulator is read
 * and written once for all of them. */
#define COLUMN(name, in_t, acc_t, step)                                                          \
    static void name##_column(void *acc, const void *input, int64_t n, int64_t rows,             \
                              int64_t stride, double p)                                          \
    {                                                                                            \
        acc_t *restrict to = acc;                                                                \
        const in_t *restrict from = input;                                                       \
        for (; rows >= 4; rows -= 4, from += 4 * stride)                                         \
            for (int64_t i = 0; i < n; i++) {                                                    \
                acc_t s = to[i], x = (acc_t)from[i];                                             \
                s = (step);                                                                      \
                x = (acc_t)from[i + stride];                                                     \
                s = (step);                                                                      \
                x = (acc_t)from[i + 2 * stride];                                                 \
                s = (step);                                                                      \
                x = (acc_t)from[i + 3 * stride];                                                 \
                to[i] = (step);                                                                  \
            }                                                                                    \
        for (; rows > 0; rows--, from += stride)                                                 \
            for (int64_t i = 0; i < n; i++) {                                                    \
                acc_t s = to[i], x = (acc_t)from[i];                                             \
                to[i] = (step);                                                                  \
            }                                                                                    \
    }

/* Four streams hide the latency of the additions; which element goes where depends on n alone. */
#define ADD_ROW(name, in_t, acc_t, expr)                                                         \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        const in_t *x0 = input, *x1 = x0 + n / 4, *x2 = x1 + n / 4, *x3 = x2 + n / 4;            \
        acc_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                                    \
        _Pragma("omp simd reduction(+ : s0, s1, s2, s3)") for (int64_t i = 0; i < n / 4; i++)    \
        {                                                                                        \
            acc_t x = x0[i];                                                                     \
            s0 += (expr);                                                                        \
            x = x1[i];                                                                           \
            s1 += (expr);                                                                        \
            x = x2[i];                                                                           \
            s2 += (expr);                                                                        \
            x = x3[i];                                                                           \
            s3 += (expr);                                                                        \
        }                                                                                        \
        for (int64_t i = n / 4 * 4; i < n; i++) {                                                \
            acc_t x = x0[i];                                                                     \
            s3 += (expr);                                                                        \
        }                                                                                        \
        *(acc_t *)acc += (s0 + s1) + (s2 + s3);                                                  \
    }

#define ADD_LOOPS(name, in_t, acc_t, expr)                                                       \
    ADD_ROW(name, in_t, acc_t, expr)                                                             \
    COLUMN(name, in_t, acc_t, s + (expr))

/* Plain sums of float32: up to 8 additions per lane in float32 vectors, then double. */
typedef float ah_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef float ah_half_lanes __attribute__((vector_size(32)));
typedef double ah_wide_lanes __attribute__((vector_size(64)));

static inline ah_wide_lanes widened(ah_lanes x)
{
    union {
        ah_lanes all;
        ah_half_lanes half[2];
    } lanes = {x};
    return __builtin_convertvector(lanes.half[0], ah_wide_lanes) +
           __builtin_convertvector(lanes.half[1], ah_wide_lanes);
}

typedef int32_t ah_bit_lanes __attribute__((vector_size(64)));

static inline ah_lanes zero_nan(ah_lanes x)
{
    return (ah_lanes)((ah_bit_lanes)x & (ah_bit_lanes)(x == x));
}

#define SUM_F32_ROW(name, LANES, expr)                                                           \
    static inline void name##_row(void *acc, const void *input, int64_t n, double p)             \
    {                                                                                            \
        const float *from = input;                                                               \
        ah_wide_lanes wide = {0};                                                                \
        while (n >= 64) {                                                                        \
            int64_t count = n / 64 < 8 ? n / 64 : 8;                                             \
            ah_lanes a = {0}, b = {0}, c = {0}, d = {0};                                         \
            for (int64_t k = 0; k < count; k++, from += 64) {                                    \
                a += LANES(*(const ah_lanes *)from);                                             \
                b += LANES(*(const ah_lanes *)(from + 16));                                      \
                c += LANES(*(const ah_lanes *)(from + 32));                                      \
                d += LANES(*(const ah_lanes *)(from + 48));                                      \
            }                                                                                    \
            wide += (widened(a) + widened(b)) + (widened(c) + widened(d));                       \
            n -= count * 64;                                                                     \
        }                                                                                        \
        for (; n >= 16; n -= 16, from += 16)                                                     \
            wide += widened(LANES(*(const ah_lanes *)from));                                     \
        double sum = ((wide[0] + wide[1]) + (wide[2] + wide[3])) +                               \
                     ((wide[4] + wide[5]) + (wide[6] + wide[7]));                                \
        for (int64_t i = 0; i < n; i++) {                                                        \
            double x = (double)from[i];                                                          \
            sum += (expr);                                                                       \
        }                                                                                        \
        *(double *)acc += sum;                                                                   \
    }

/* Folds of float32 in vectors of double, four of which hide the latency of the operation `op` that joins them: `expr`
 * is the value of an input, or of a vector of inputs, x. */
typedef float ah_loose_lanes __attribute__((vector_size(32), aligned(4), may_alias));

static inline ah_wide_lanes widen_8(const float *x)
{
#if defined(__AVX512F__)
    return (ah_wide_lanes)_mm512_cvtps_pd(_mm256_loadu_ps(x)); /* GCC 12 converts in two halves */
#else
    return __builtin_convertvector(*(const ah_loose_lanes *)x, ah_wide_lanes);
#endif
}

#define LANES_F32_ROW(name, start, op, expr)                                                     \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        const float *from = input;                                                               \
        ah_wide_lanes lane[4];                                                                   \
        for (int k = 0; k < 4; k++)                                                              \
            lane[k] = (ah_wide_lanes){start, start, start, start, start, start, start, start};   \
        for (; n >= 32; n -= 32, from += 32)                                                     \
            for (int k = 0; k < 4; k++) {                                                        \
                ah_wide_lanes x = widen_8(from + 8 * k);                                         \
                lane[k] = lane[k] op(expr);                                                      \
            }                                                                                    \
        for (; n >= 8; n -= 8, from += 8) {                                                      \
            ah_wide_lanes x = widen_8(from);                                                     \
            lane[0] = lane[0] op(expr);                                                          \
        }                                                                                        \
        ah_wide_lanes s = (lane[0] op lane[1]) op(lane[2] op lane[3]);                           \
        double all = ((s[0] op s[1]) op(s[2] op s[3])) op((s[4] op s[5]) op(s[6] op s[7]));      \
        for (int64_t i = 0; i < n; i++) {                                                        \
            double x = (double)from[i];                                                          \
            all = all op(expr);                                                                  \
        }                                                                                        \
        *(double *)acc = *(double *)acc op all;                                                  \
    }

/* Folds that are not sums: `first` makes an accumulator of x, `step` a new one of s and x. */
#define STEP_ROW(name, in_t, acc_t, first, step)                                                 \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        const in_t *from = input;                                                                \
        acc_t s0 = *(acc_t *)acc;                                                                \
        acc_t lane[16];                                                                          \
        int64_t i = 0;                                                                           \
        if (n >= 64) {                                                                           \
            for (int k = 0; k < 16; k++) {                                                       \
                acc_t x = (acc_t)from[k];                                                        \
                lane[k] = (first);                                                               \
            }                                                                                    \
            for (i = 16; i + 16 <= n; i += 16)                                                   \
                for (int k = 0; k < 16; k++) {                                                   \
                    acc_t s = lane[k], x = (acc_t)from[i + k];                                   \
                    lane[k] = (step);                                                            \
                }                                                                                \
            for (int k = 0; k < 16; k++) {                                                       \
                acc_t s = s0, x = lane[k];                                                       \
                s0 = (step);                                                                     \
            }                                                                                    \
        }                                                                                        \
        for (; i < n; i++) {                                                                     \
            acc_t s = s0, x = (acc_t)from[i];                                                    \
            s0 = (step);                                                                         \
        }                                                                                        \
        *(acc_t *)acc = s0;                                                                      \
    }

#define STEP_LOOPS(name, in_t, acc_t, first, step)                                               \
    STEP_ROW(name, in_t, acc_t, first, step)                                                     \
    COLUMN(name, in_t, acc_t, step)

#define INT_MAX_STEP(s, x) ((x) > (s) ? (x) : (s))
#define INT_MIN_STEP(s, x) ((x) < (s) ? (x) : (s))
#define MAX_STEP(s, x) ((((x) > (s)) | ((x) != (x))) ? (x) : (s))
#define MIN_STEP(s, x) ((((x) < (s)) | ((x) != (x))) ? (x) : (s))

/* The extreme of n values, in lanes that vectorise; the last lanes overlap those before. */
#define LANE_EXTREME(name, type, STEP, LANES)                                                    \
    static inline type name(const type *from, int64_t n)                                         \
    {                                                                                            \
        type lane[LANES];                                                                        \
        memcpy(lane, from, sizeof lane);                                                         \
        for (int64_t i = LANES; i + LANES <= n; i += LANES)                                      \
            for (int k = 0; k < LANES; k++) {                                                    \
                type x = from[i + k];                                                            \
                lane[k] = STEP(lane[k], x);                                                      \
            }                                                                                    \
        for (int k = 0; k < LANES; k++) {                                                        \
            type x = from[n - LANES + k];                                                        \
            lane[k] = STEP(lane[k], x);                                                          \
        }                                                                                        \
        for (int half = LANES / 2; half > 0; half /= 2)                                          \
            for (int k = 0; k < half; k++)                                                       \
                lane[k] = STEP(lane[k], lane[k + half]);                                         \
        return lane[0];                                                                          \
    }

/* The extreme of n >= 1 values; NaN wins. */
#define ROW_EXTREME(name, type, STEP)                                                            \
    LANE_EXTREME(name##_long, type, STEP, 256 / (int)sizeof(type))                               \
    LANE_EXTREME(name##_short, type, STEP, 64 / (int)sizeof(type))                               \
    static type name(const type *from, int64_t n)                                                \
    {                                                                                            \
        type best = from[0];                                                                     \
        if (n >= 256 / (int)sizeof(type))                                                        \
            return name##_long(from, n);                                                         \
        if (n >= 64 / (int)sizeof(type))                                                         \
            return name##_short(from, n);                                                        \
        for (int64_t i = 1; i < n; i++)                                                          \
            best = STEP(best, from[i]);                                                          \
        return best;                                                                             \
    }

/* A fold by such a function. */
#define EXTREME_ROW(name, in_t, acc_t, STEP)                                                     \
    ROW_EXTREME(name##_of, in_t, STEP)                                                           \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        acc_t s = *(acc_t *)acc, x = n > 0 ? (acc_t)name##_of(input, n) : s;                     \
        *(acc_t *)acc = STEP(s, x);                                                              \
    }

/* Columns as in STEP_LOOPS. */
#define EXTREME_LOOPS(name, in_t, acc_t, STEP)                                                   \
    EXTREME_ROW(name, in_t, acc_t, STEP)                                                         \
    COLUMN(name, in_t, acc_t, STEP(s, x))

/* The column of an extreme of float32: of four rows in float32 first, in vectors. */
typedef int64_t ah_wide_bits __attribute__((vector_size(64)));
typedef ah_wide_lanes ah_loose_wide __attribute__((aligned(8), may_alias));

#define EXTREME_F32_COLUMN(name, better, STEP)                                                   \
    static inline ah_lanes name##_lanes(ah_lanes s, ah_lanes x)                                  \
    {                                                                                            \
        ah_bit_lanes taken = (x better s) | (x != x);                                            \
        return (ah_lanes)(((ah_bit_lanes)x & taken) | ((ah_bit_lanes)s & ~taken));               \
    }                                                                                            \
    static inline void name##_wide(double *acc, const float *four)                               \
    {                                                                                            \
        ah_wide_lanes x = widen_8(four), s = *(ah_loose_wide *)acc;                              \
        ah_wide_bits taken = (x better s) | (x != x);                                            \
        *(ah_loose_wide *)acc = (ah_wide_lanes)(((ah_wide_bits)x & taken) | ((ah_wide_bits)s & ~taken)); \
    }                                                                                            \
    COLUMN(name##_each, float, double, STEP(s, x))                                               \
    static void name##_column(void *acc, const void *input, int64_t n, int64_t rows,             \
                              int64_t stride, double p)                                          \
    {                                                                                            \
        const float *from = input;                                                               \
        double *to = acc;                                                                        \
        int64_t wide = n / 16 * 16, fours = rows / 4 * 4;                                        \
        for (int64_t r = 0; r < fours; r += 4)                                                   \
            for (int64_t i = 0; i < wide; i += 16) {                                             \
                const float *x = from + r * stride + i;                                          \
                ah_lanes four = name##_lanes(                                                    \
                    name##_lanes(*(const ah_lanes *)x, *(const ah_lanes *)(x + stride)),         \
                    name##_lanes(*(const ah_lanes *)(x + 2 * stride), *(const ah_lanes *)(x + 3 * stride))); \
                name##_wide(to + i, (const float *)&four);                                       \
                name##_wide(to + i + 8, (const float *)&four + 8);                               \
            }                                                                                    \
        name##_each_column(to + wide, from + wide, n - wide, fours, stride, p);                  \
        name##_each_column(to, from + fours * stride, n, rows - fours, stride, p);               \
    }

/* Every fold of one input type, but for the sums, products and squares of floats. Products of integers wrap around. */
#define FLOAT_FOLDS(t, in_t)                                                                     \
    ADD_LOOPS(count_##t, in_t, double, x != 0)                                                   \
    ADD_LOOPS(abs_##t, in_t, double, fabs(x))                                                    \
    ADD_LOOPS(powers_##t, in_t, double, pow(fabs(x), p))                                         \
    EXTREME_ROW(max_##t, in_t, double, MAX_STEP)                                                 \
    EXTREME_ROW(min_##t, in_t, double, MIN_STEP)

#define INT_FOLDS(t, in_t)                                                                       \
    ADD_LOOPS(sum_##t, in_t, uint64_t, x)                                                        \
    ADD_LOOPS(count_##t, in_t, uint64_t, x != 0)                                                 \
    STEP_LOOPS(prod_##t, in_t, uint64_t, x, s *x)                                                   \
    EXTREME_LOOPS(max_##t, in_t, int64_t, INT_MAX_STEP)                                              \
    EXTREME_LOOPS(min_##t, in_t, int64_t, INT_MIN_STEP)

#endif
