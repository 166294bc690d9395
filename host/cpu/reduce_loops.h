/* Private to reduce.c: the inner loops of a fold, for one input type and one accumulator type. `row` folds n inputs
 * into one accumulator, `column` folds n inputs into n accumulators. */
#ifndef AH_CPU_REDUCE_LOOPS_H
#define AH_CPU_REDUCE_LOOPS_H

#include <math.h>
#include <stdint.h>

struct fold_loops {
    void (*row)(void *acc, const void *input, int64_t n, double p);
    void (*column)(void *acc, const void *input, int64_t n, double p);
};

/* Four streams hide the latency of the additions; which element goes where depends on n alone. */
#define ADD_LOOPS(name, in_t, acc_t, expr)                                                       \
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
    }                                                                                            \
    static void name##_column(void *acc, const void *input, int64_t n, double p)                 \
    {                                                                                            \
        acc_t *restrict s = acc;                                                                 \
        const in_t *restrict from = input;                                                       \
        for (int64_t i = 0; i < n; i++) {                                                        \
            acc_t x = from[i];                                                                   \
            s[i] += (expr);                                                                      \
        }                                                                                        \
    }

/* Folds that are not sums: `first` makes an accumulator of x, `step` a new one of s and x. */
#define STEP_LOOPS(name, in_t, acc_t, first, step)                                                 \
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
    }                                                                                            \
    static void name##_column(void *acc, const void *input, int64_t n, double p)                 \
    {                                                                                            \
        acc_t *restrict to = acc;                                                                \
        const in_t *restrict from = input;                                                       \
        for (int64_t i = 0; i < n; i++) {                                                        \
            acc_t s = to[i], x = (acc_t)from[i];                                                 \
            to[i] = (step);                                                                      \
        }                                                                                        \
    }

#define MAX_STEP(s, x) ((x) > (s) || (x) != (x) ? (x) : (s))
#define MIN_STEP(s, x) ((x) < (s) || (x) != (x) ? (x) : (s))

/* Every fold of one input type. Products of integers wrap around. */
#define FLOAT_FOLDS(t, in_t)                                                                     \
    ADD_LOOPS(sum_##t, in_t, double, x)                                                          \
    ADD_LOOPS(count_##t, in_t, double, x != 0)                                                   \
    ADD_LOOPS(abs_##t, in_t, double, fabs(x))                                                    \
    ADD_LOOPS(squares_##t, in_t, double, x *x)                                                   \
    ADD_LOOPS(powers_##t, in_t, double, pow(fabs(x), p))                                         \
    STEP_LOOPS(prod_##t, in_t, double, x, s *x)                                                     \
    STEP_LOOPS(max_##t, in_t, double, x, MAX_STEP(s, x))                                            \
    STEP_LOOPS(min_##t, in_t, double, x, MIN_STEP(s, x))

#define INT_FOLDS(t, in_t)                                                                       \
    ADD_LOOPS(sum_##t, in_t, uint64_t, x)                                                        \
    ADD_LOOPS(count_##t, in_t, uint64_t, x != 0)                                                 \
    STEP_LOOPS(prod_##t, in_t, uint64_t, x, s *x)                                                   \
    STEP_LOOPS(max_##t, in_t, int64_t, x, (x) > (s) ? (x) : (s))                                    \
    STEP_LOOPS(min_##t, in_t, int64_t, x, (x) < (s) ? (x) : (s))

#endif
