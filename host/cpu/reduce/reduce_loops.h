/* For reduce.c and reduce_ops.c: the inner loops of a fold, for one input type and one accumulator type. `row` folds n
 * inputs into one accumulator, `column` folds n inputs into n accumulators. */
#ifndef AH_CPU_REDUCE_LOOPS_H
#define AH_CPU_REDUCE_LOOPS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

struct fold_loops {
    void (*row)(void *acc, const void *input, int64_t n, double p);
    void (*column)(void *acc, const void *input, int64_t n, double p);
};

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

#define ADD_COLUMN(name, in_t, acc_t, expr)                                                      \
    static void name##_column(void *acc, const void *input, int64_t n, double p)                 \
    {                                                                                            \
        acc_t *restrict s = acc;                                                                 \
        const in_t *restrict from = input;                                                       \
        for (int64_t i = 0; i < n; i++) {                                                        \
            acc_t x = from[i];                                                                   \
            s[i] += (expr);                                                                      \
        }                                                                                        \
    }

#define ADD_LOOPS(name, in_t, acc_t, expr)                                                       \
    ADD_ROW(name, in_t, acc_t, expr)                                                             \
    ADD_COLUMN(name, in_t, acc_t, expr)

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
        double sum = ((wide[0] + wide[1]) + (wide[2] + wide[3])) +                               \
                     ((wide[4] + wide[5]) + (wide[6] + wide[7]));                                \
        for (int64_t i = 0; i < n; i++) {                                                        \
            double x = (double)from[i];                                                          \
            sum += (expr);                                                                       \
        }                                                                                        \
        *(double *)acc += sum;                                                                   \
    }

/* Products of float32 in double: four vectors hide the latency of the multiplications. */
typedef float ah_loose_lanes __attribute__((vector_size(32), aligned(4), may_alias));

static inline void prod_f32_row(void *acc, const void *input, int64_t n, double p)
{
    const float *x = input;
    ah_wide_lanes a = {1, 1, 1, 1, 1, 1, 1, 1}, b = a, c = a, d = a;
    for (; n >= 32; n -= 32, x += 32) {
        a *= __builtin_convertvector(*(const ah_loose_lanes *)x, ah_wide_lanes);
        b *= __builtin_convertvector(*(const ah_loose_lanes *)(x + 8), ah_wide_lanes);
        c *= __builtin_convertvector(*(const ah_loose_lanes *)(x + 16), ah_wide_lanes);
        d *= __builtin_convertvector(*(const ah_loose_lanes *)(x + 24), ah_wide_lanes);
    }
    ah_wide_lanes all = (a * b) * (c * d);
    double product = ((all[0] * all[1]) * (all[2] * all[3])) * ((all[4] * all[5]) * (all[6] * all[7]));
    for (int64_t i = 0; i < n; i++)
        product *= (double)x[i];
    *(double *)acc *= product;
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

#define STEP_COLUMN(name, in_t, acc_t, step)                                                     \
    static void name##_column(void *acc, const void *input, int64_t n, double p)                 \
    {                                                                                            \
        acc_t *restrict to = acc;                                                                \
        const in_t *restrict from = input;                                                       \
        for (int64_t i = 0; i < n; i++) {                                                        \
            acc_t s = to[i], x = (acc_t)from[i];                                                 \
            to[i] = (step);                                                                      \
        }                                                                                        \
    }

#define STEP_LOOPS(name, in_t, acc_t, first, step)                                               \
    STEP_ROW(name, in_t, acc_t, first, step)                                                     \
    STEP_COLUMN(name, in_t, acc_t, step)

#define INT_MAX_STEP(s, x) ((x) > (s) ? (x) : (s))
#define INT_MIN_STEP(s, x) ((x) < (s) ? (x) : (s))
#define MAX_STEP(s, x) ((x) > (s) || (x) != (x) ? (x) : (s))
#define MIN_STEP(s, x) ((x) < (s) || (x) != (x) ? (x) : (s))

/* The extreme of n >= 1 values; the first NaN wins. The lanes vectorise. */
#define ROW_EXTREME(name, type, STEP)                                                            \
    static type name(const type *from, int64_t n)                                                \
    {                                                                                            \
        enum { LANES = 256 / sizeof(type) };                                                     \
        type lane[LANES], best = from[0];                                                        \
        int64_t i = 0;                                                                           \
        if (n >= 2 * LANES) {                                                                    \
            memcpy(lane, from, sizeof lane);                                                     \
            for (i = LANES; i + LANES <= n; i += LANES)                                          \
                for (int k = 0; k < LANES; k++) {                                                \
                    type x = from[i + k];                                                        \
                    lane[k] = STEP(lane[k], x);                                                  \
                }                                                                                \
            for (int k = 0; k < LANES; k++)                                                      \
                best = STEP(best, lane[k]);                                                      \
        }                                                                                        \
        for (; i < n; i++)                                                                       \
            best = STEP(best, from[i]);                                                          \
        return best;                                                                             \
    }

/* A fold by such a function; columns as in STEP_LOOPS. */
#define EXTREME_LOOPS(name, in_t, acc_t, STEP)                                                   \
    ROW_EXTREME(name##_of, in_t, STEP)                                                           \
    static void name##_row(void *acc, const void *input, int64_t n, double p)                    \
    {                                                                                            \
        acc_t s = *(acc_t *)acc, x = n > 0 ? (acc_t)name##_of(input, n) : s;                     \
        *(acc_t *)acc = STEP(s, x);                                                              \
    }                                                                                            \
    static void name##_column(void *acc, const void *input, int64_t n, double p)                 \
    {                                                                                            \
        acc_t *restrict to = acc;                                                                \
        const in_t *restrict from = input;                                                       \
        for (int64_t i = 0; i < n; i++) {                                                        \
            acc_t s = to[i], x = (acc_t)from[i];                                                 \
            to[i] = STEP(s, x);                                                                  \
        }                                                                                        \
    }

/* Every fold of one input type, but for the sums and products of floats. Products of integers wrap around. */
#define FLOAT_FOLDS(t, in_t)                                                                     \
    ADD_LOOPS(count_##t, in_t, double, x != 0)                                                   \
    ADD_LOOPS(abs_##t, in_t, double, fabs(x))                                                    \
    ADD_LOOPS(squares_##t, in_t, double, x *x)                                                   \
    ADD_LOOPS(powers_##t, in_t, double, pow(fabs(x), p))                                         \
    EXTREME_LOOPS(max_##t, in_t, double, MAX_STEP)                                               \
    EXTREME_LOOPS(min_##t, in_t, double, MIN_STEP)

#define INT_FOLDS(t, in_t)                                                                       \
    ADD_LOOPS(sum_##t, in_t, uint64_t, x)                                                        \
    ADD_LOOPS(count_##t, in_t, uint64_t, x != 0)                                                 \
    STEP_LOOPS(prod_##t, in_t, uint64_t, x, s *x)                                                   \
    EXTREME_LOOPS(max_##t, in_t, int64_t, INT_MAX_STEP)                                              \
    EXTREME_LOOPS(min_##t, in_t, int64_t, INT_MIN_STEP)

#endif
