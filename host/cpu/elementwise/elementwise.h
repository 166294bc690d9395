/* Private to the elementwise kernels: how inner loops are written and run. */
#pragma once

#include <string.h>

#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/lanes.h"

/* Run the loop for dtype `in` over out[0] and the first `inputs` arguments; one input of two may be a repeated value.
 * `numbers` (at least 2 doubles; NULL: the call's first number arguments) reach the loops as c0 and c1. AH_ENOTIMPL
 * when the op has no loop for that dtype. Halves use the loop for float32, unless the table has one on their bits and
 * all tensors have the dtype `in`. */
int ah_elementwise(struct ah_call *c, int inputs, enum ah_dtype in, enum ah_dtype out, const ah_loop *loops,
                   const double *numbers);

/* The same of two inputs of `dtype` with loops on the bits of halves that accept AH_STEP_NUMBER (half_loops.h): a
 * 0-dim input of another dtype is not converted to a half, as in the loops for float32. */
enum { AH_STEP_NUMBER = -1 }; /* data[k] is one float */
int ah_elementwise_of_two(struct ah_call *c, enum ah_dtype dtype, const ah_loop *loops, const double *numbers);

/* The same in the dtype of the result, or in the one to which the inputs promote. */
int ah_elementwise_result(struct ah_call *c, int inputs, const ah_loop *loops);
int ah_elementwise_promoted(struct ah_call *c, int inputs, const ah_loop *loops);

/* Two inputs, in the dtype to which they promote. AH_EINVAL when one of a whole dtype is divided by zero. */
int ah_elementwise_divide(struct ah_call *c, const ah_loop *loops);

/* In the dtype of the result if it is a float; whole numbers are copied, since a result never is its input. */
int ah_elementwise_of_floats(struct ah_call *c, const ah_loop *loops);

/* Tests: the result is boolean. Of one input; whole numbers, unless there is a loop of int64, pass as 0 does: all are
 * finite. Of two inputs that promote, in their order or `exchanged`. */
int ah_elementwise_test(struct ah_call *c, const ah_loop *loops);
int ah_elementwise_compare(struct ah_call *c, const ah_loop *loops, bool exchanged);

/* Report whether the call has the string argument `name`. */
bool ah_elementwise_has(const struct ah_call *c, const char *name);

/* The loops of sums a + alpha * b (elementwise_arithmetic.c), those of one input for powers with this exponent, or
 * NULL, and those of two inputs for powers with any. */
const ah_loop *ah_sum_loops(double alpha);
const ah_loop *ah_power_loops(double exponent);
extern const ah_loop ah_any_power_loops[AH_DTYPE_COUNT];

/* A negative number reaches an unsigned type by way of int64. */
#define AS_NUMBER(type, x) _Generic((type)0, float: (x), double: (x), default: (int64_t)(x))

#define LOOP_HEAD(fn, in_t)                                                                             \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context)              \
    {                                                                                                   \
        const double *numbers = context;                                                                \
        const in_t c0 __attribute__((unused)) = (in_t)AS_NUMBER(in_t, numbers[0]);                      \
        const in_t c1 __attribute__((unused)) = (in_t)AS_NUMBER(in_t, numbers[1]);

/* One input `a`, two inputs `a` and `b` (each may be one repeated value), three inputs `a`, `b`, `c`. The output may be
 * an input, so pointers are not restrict; elements do not depend on each other, hence omp simd. */
#define LOOP1(fn, in_t, out_t, expr)                                                                    \
    LOOP_HEAD(fn, in_t)                                                                                 \
        out_t *y = data[0];                                                                             \
        const in_t *x = data[1];                                                                        \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                             \
        {                                                                                               \
            const in_t a = x[i];                                                                        \
            y[i] = (out_t)(expr);                                                                       \
        }                                                                                               \
    }

#define LOOP2_CASE(in_t, out_t, expr, sa, sb)                                                           \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                 \
    {                                                                                                   \
        const in_t a = p[sa], b __attribute__((unused)) = q[sb];                                        \
        y[i] = (out_t)(expr);                                                                           \
    }

#define LOOP2(fn, in_t, out_t, expr)                                                                    \
    LOOP_HEAD(fn, in_t)                                                                                 \
        out_t *y = data[0];                                                                             \
        const in_t *p = data[1], *q = data[2];                                                          \
        const in_t p0 = p[0], q0 = q[0];                                                                \
        if (step[1] && step[2]) {                                                                       \
            LOOP2_CASE(in_t, out_t, expr, i, i)                                                         \
        } else if (step[1]) {                                                                           \
            const in_t b __attribute__((unused)) = q0;                                                  \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                         \
            {                                                                                           \
                const in_t a = p[i];                                                                    \
                y[i] = (out_t)(expr);                                                                   \
            }                                                                                           \
        } else if (step[2]) {                                                                           \
            const in_t a = p0;                                                                          \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                         \
            {                                                                                           \
                const in_t b __attribute__((unused)) = q[i];                                            \
                y[i] = (out_t)(expr);                                                                   \
            }                                                                                           \
        } else {                                                                                        \
            const in_t a = p0, b __attribute__((unused)) = q0;                                          \
            const out_t value = (out_t)(expr);                                                          \
            for (int64_t i = 0; i < n; i++)                                                             \
                y[i] = value;                                                                           \
        }                                                                                               \
    }

/* As LOOP1 and LOOP2, of one type, for long expressions: one copy of the code, which computes a vector at a time. The
 * last one is filled up. */
#define LONG_LOOP1(fn, type, expr)                                                                      \
    LOOP_HEAD(fn, type)                                                                                 \
        enum { WIDTH = 64 / (int)sizeof(type) };                                                        \
        type *y = data[0], last[WIDTH] = {0};                                                           \
        const type *x = data[1];                                                                        \
        for (int64_t begin = 0; begin < n; begin += WIDTH) {                                            \
            size_t left = n - begin < WIDTH ? (size_t)(n - begin) * sizeof *y : 0;                      \
            const type *from = left ? memcpy(last, x + begin, left) : x + begin;                        \
            type *to = left ? last : y + begin;                                                         \
            _Pragma("omp simd") for (int i = 0; i < WIDTH; i++)                                         \
            {                                                                                           \
                const type a = from[i];                                                                 \
                to[i] = (type)(expr);                                                                   \
            }                                                                                           \
            if (left)                                                                                   \
                memcpy(y + begin, last, left);                                                          \
        }                                                                                               \
    }

#define LONG_LOOP2(fn, type, expr)                                                                      \
    LOOP_HEAD(fn, type)                                                                                 \
        enum { WIDTH = 64 / (int)sizeof(type) };                                                        \
        type *y = data[0], first[WIDTH], second[WIDTH];                                                 \
        const type *p = data[1], *q = data[2];                                                          \
        for (int i = 0; i < WIDTH; i++) {                                                               \
            first[i] = p[0];                                                                            \
            second[i] = q[0];                                                                           \
        }                                                                                               \
        for (int64_t begin = 0; begin < n; begin += WIDTH) {                                            \
            size_t left = n - begin < WIDTH ? (size_t)(n - begin) * sizeof *y : 0;                      \
            if (left && step[1])                                                                        \
                memcpy(first, p + begin, left);                                                         \
            if (left && step[2])                                                                        \
                memcpy(second, q + begin, left);                                                        \
            const type *of_a = left || !step[1] ? first : p + begin;                                    \
            const type *of_b = left || !step[2] ? second : q + begin;                                   \
            type *to = left ? first : y + begin;                                                        \
            _Pragma("omp simd") for (int i = 0; i < WIDTH; i++)                                         \
            {                                                                                           \
                const type a = of_a[i], b = of_b[i];                                                    \
                to[i] = (type)(expr);                                                                   \
            }                                                                                           \
            if (left)                                                                                   \
                memcpy(y + begin, first, left);                                                         \
        }                                                                                               \
    }

/* As LONG_LOOP1, of float32, from an expression of vectors (cpu/loop/lanes.h). */
#define LANES_LOOP1(fn, expr)                                                                           \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context)              \
    {                                                                                                   \
        enum { WIDTH = AH_LANES_BYTES / (int)sizeof(float) };                                           \
        float *y = data[0], last[WIDTH] = {0};                                                          \
        const float *x = data[1];                                                                       \
        for (int64_t begin = 0; begin < n; begin += WIDTH) {                                            \
            size_t left = n - begin < WIDTH ? (size_t)(n - begin) * sizeof *y : 0;                      \
            const float *from = left ? memcpy(last, x + begin, left) : x + begin;                       \
            const ah_lanes_f32 a = *(const ah_lanes_at_f32 *)from;                                      \
            *(ah_lanes_at_f32 *)(left ? last : y + begin) = (expr);                                     \
            if (left)                                                                                   \
                memcpy(y + begin, last, left);                                                          \
        }                                                                                               \
    }

#define LOOP3(fn, a_t, in_t, out_t, expr)                                                               \
    LOOP_HEAD(fn, in_t)                                                                                 \
        out_t *y = data[0];                                                                             \
        const a_t *p = data[1];                                                                         \
        const in_t *q = data[2], *r = data[3];                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                             \
        {                                                                                               \
            const a_t a = p[i];                                                                         \
            const in_t b = q[i], c = r[i];                                                              \
            y[i] = (out_t)(expr);                                                                       \
        }                                                                                               \
    }

/* Loops of one name for several dtypes, as a table. */
#define FLOAT_TABLE(name) \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {[AH_F32] = name##_f32, [AH_F64] = name##_f64}
#define FLOAT_TABLE_BF16(name)                                                                          \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                               \
        [AH_BF16] = name##_bf16, [AH_F32] = name##_f32, [AH_F64] = name##_f64}
#define NUMBER_TABLE(name)                                                                              \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                               \
        [AH_U8] = name##_u8, [AH_I32] = name##_i32, [AH_I64] = name##_i64, [AH_F32] = name##_f32,       \
        [AH_F64] = name##_f64}
#define ALL_TABLE(name)                                                                                 \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                               \
        [AH_BOOL] = name##_b8,  [AH_U8] = name##_u8,   [AH_I32] = name##_i32,                           \
        [AH_I64] = name##_i64,  [AH_F32] = name##_f32, [AH_F64] = name##_f64}

/* Define the kernel of op `name`, whose loops are in the table name_loops: over inputs of the result's dtype, or of the
 * one that the inputs promote to. */
#define RESULT_KERNEL(name, inputs)                            \
    int ah_cpu_##name(struct ah_call *c)                       \
    {                                                          \
        return ah_elementwise_result(c, inputs, name##_loops); \
    }
#define PROMOTED_KERNEL(name, inputs)                            \
    int ah_cpu_##name(struct ah_call *c)                         \
    {                                                            \
        return ah_elementwise_promoted(c, inputs, name##_loops); \
    }

/* A kernel of one float or two, from an expression in `a` and `b` for each dtype; from a long one. */
#define FLOAT_UNARY(name, expr32, expr64)     \
    LOOP1(name##_f32, float, float, expr32)   \
    LOOP1(name##_f64, double, double, expr64) \
    FLOAT_TABLE(name);                        \
    RESULT_KERNEL(name, 1)
#define LONG_UNARY(name, expr32, expr64)   \
    LONG_LOOP1(name##_f32, float, expr32)  \
    LONG_LOOP1(name##_f64, double, expr64) \
    FLOAT_TABLE(name);                     \
    RESULT_KERNEL(name, 1)
#define FLOAT_BINARY(name, expr32, expr64)    \
    LOOP2(name##_f32, float, float, expr32)   \
    LOOP2(name##_f64, double, double, expr64) \
    FLOAT_TABLE(name);                        \
    RESULT_KERNEL(name, 2)

/* Loops of two inputs of any dtype. */
#define ALL_LOOPS2(name, expr)                \
    LOOP2(name##_b8, uint8_t, uint8_t, expr)  \
    LOOP2(name##_u8, uint8_t, uint8_t, expr)  \
    LOOP2(name##_i32, int32_t, int32_t, expr) \
    LOOP2(name##_i64, int64_t, int64_t, expr) \
    LOOP2(name##_f32, float, float, expr)     \
    LOOP2(name##_f64, double, double, expr)
