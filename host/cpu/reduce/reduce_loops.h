/* The inner loops of a fold (struct ah_fold_loops) for one input type and one accumulator type. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/loop/row_extreme.h"
#include "cpu/loop/row_sum.h"

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

/* 32 accumulators hide the latency of the additions; which element goes where depends on n alone. */
#define ADD_ROW(name, in_t, acc_t, expr)                                                         \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        const in_t *from = input;                                                                \
        acc_t lane[32] = {0};                                                                    \
        for (; n >= 32; n -= 32, from += 32)                                                     \
            for (int k = 0; k < 32; k++) {                                                       \
                acc_t x = from[k];                                                               \
                lane[k] += (expr);                                                               \
            }                                                                                    \
        for (int64_t k = 0; k < n; k++) {                                                        \
            acc_t x = from[k];                                                                   \
            lane[k] += (expr);                                                                   \
        }                                                                                        \
        for (int half = 16; half > 0; half /= 2)                                                 \
            for (int k = 0; k < half; k++)                                                       \
                lane[k] += lane[k + half];                                                       \
        *(acc_t *)acc += lane[0];                                                                \
    }

#define ADD_LOOPS(name, in_t, acc_t, expr)                                                       \
    ADD_ROW(name, in_t, acc_t, expr)                                                             \
    COLUMN(name, in_t, acc_t, s + (expr))

/* Folds of float32 in vectors of double, 32 numbers of which hide the latency of the operation `op` that joins them:
 * `expr` is the value of an input, or of a vector of inputs, x. */
#define LANES_F32_ROW(name, start, op, expr)                                                     \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        enum { WIDTH = AH_LANES_BYTES / 8, VECTORS = 32 / WIDTH, EIGHT = 8 / WIDTH };            \
        const float *from = input;                                                               \
        ah_lanes_f64 lane[VECTORS];                                                              \
        double s[8];                                                                             \
        for (int k = 0; k < VECTORS; k++)                                                        \
            lane[k] = ah_spread_f64((double)start);                                              \
        for (; n >= 32; n -= 32, from += 32)                                                     \
            _Pragma("GCC unroll 16") for (int k = 0; k < VECTORS; k++)                           \
            {                                                                                    \
                ah_lanes_f64 x = ah_widen_at(from + WIDTH * k);                                  \
                lane[k] = lane[k] op(expr);                                                      \
            }                                                                                    \
        for (; n >= 8; n -= 8, from += 8)                                                        \
            _Pragma("GCC unroll 4") for (int k = 0; k < EIGHT; k++)                              \
            {                                                                                    \
                ah_lanes_f64 x = ah_widen_at(from + WIDTH * k);                                  \
                lane[k] = lane[k] op(expr);                                                      \
            }                                                                                    \
        for (int k = 0; k < EIGHT; k++) {                                                        \
            lane[k] = (lane[k] op lane[k + EIGHT]) op(lane[k + 2 * EIGHT] op lane[k + 3 * EIGHT]); \
            memcpy(s + WIDTH * k, &lane[k], sizeof lane[k]);                                     \
        }                                                                                        \
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

#define FLOAT_EXTREME_ROW(name, in_t, STEP, of)                                                  \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        double s = *(double *)acc, x = n > 0 ? (double)of(input, n) : s;                         \
        *(double *)acc = STEP(s, x);                                                             \
    }

/* Columns as in STEP_LOOPS. */
#define EXTREME_LOOPS(name, in_t, acc_t, STEP)                                                   \
    EXTREME_ROW(name, in_t, acc_t, STEP)                                                         \
    COLUMN(name, in_t, acc_t, STEP(s, x))

/* The column of an extreme of float32: of eight rows in float32 first, up to 512 columns at a time. */
#define EXTREME_F32_COLUMN(name, closer, STEP)                                                   \
    COLUMN(name##_each, float, double, STEP(s, x))                                               \
    static inline ah_lanes_f32 name##_pair(const float *x, int64_t stride, ah_lane_tests_f32 *nan) \
    {                                                                                            \
        ah_lanes_f32 a = *(const ah_lanes_at_f32 *)x, b = *(const ah_lanes_at_f32 *)(x + stride); \
        *nan |= ah_unordered_f32(a, b);                                                          \
        return closer(b, a);                                                                     \
    }                                                                                            \
    static void name##_eight(float *to, const float *from, int64_t n, int64_t stride)            \
    {                                                                                            \
        enum { WIDTH = AH_LANES_BYTES / (int)sizeof(float) };                                    \
        int64_t i = 0;                                                                           \
        for (; i + WIDTH <= n; i += WIDTH) {                                                     \
            const float *x = from + i;                                                           \
            ah_lane_tests_f32 nan = ah_unordered_f32(*(const ah_lanes_at_f32 *)x, *(const ah_lanes_at_f32 *)x); \
            ah_lanes_f32 a = name##_pair(x, stride, &nan), b = name##_pair(x + 2 * stride, stride, &nan); \
            ah_lanes_f32 c = name##_pair(x + 4 * stride, stride, &nan);                          \
            ah_lanes_f32 d = name##_pair(x + 6 * stride, stride, &nan);                          \
            a = closer(closer(d, c), closer(b, a));                                              \
            *(ah_lanes_at_f32 *)(to + i) = ah_nan_where_f32(nan, a);                             \
        }                                                                                        \
        for (; i < n; i++) {                                                                     \
            to[i] = from[i];                                                                     \
            for (int k = 1; k < 8; k++)                                                          \
                to[i] = STEP(to[i], from[k * stride + i]);                                       \
        }                                                                                        \
    }                                                                                            \
    static void name##_column(void *acc, const void *input, int64_t n, int64_t rows,             \
                              int64_t stride, double p)                                          \
    {                                                                                            \
        enum { BLOCK = 512 };                                                                    \
        const float *from = input;                                                               \
        float eight[BLOCK];                                                                      \
        for (; rows >= 8; rows -= 8, from += 8 * stride)                                         \
            for (int64_t i = 0; i < n; i += BLOCK) {                                             \
                int64_t count = n - i < BLOCK ? n - i : BLOCK;                                   \
                name##_eight(eight, from + i, count, stride);                                    \
                name##_each_column((double *)acc + i, eight, count, 1, 0, p);                    \
            }                                                                                    \
        name##_each_column(acc, from, n, rows, stride, p);                                       \
    }

/* Every fold of one input type, but for the sums, products and squares of floats. Products of integers wrap around. */
#define FLOAT_FOLDS(t, in_t)                                                                     \
    ADD_LOOPS(count_##t, in_t, double, x != 0)                                                   \
    ADD_LOOPS(abs_##t, in_t, double, fabs(x))                                                    \
    ADD_LOOPS(powers_##t, in_t, double, pow(fabs(x), p))                                         \
    FLOAT_EXTREME_ROW(max_##t, in_t, MAX_STEP, ah_largest_##t)                                   \
    FLOAT_EXTREME_ROW(min_##t, in_t, MIN_STEP, ah_smallest_##t)

#define INT_FOLDS(t, in_t)                                                                       \
    ADD_LOOPS(sum_##t, in_t, uint64_t, x)                                                        \
    ADD_LOOPS(count_##t, in_t, uint64_t, x != 0)                                                 \
    STEP_LOOPS(prod_##t, in_t, uint64_t, x, s *x)                                                   \
    EXTREME_LOOPS(max_##t, in_t, int64_t, INT_MAX_STEP)                                              \
    EXTREME_LOOPS(min_##t, in_t, int64_t, INT_MIN_STEP)
