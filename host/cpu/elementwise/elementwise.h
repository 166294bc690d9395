/* Private to the elementwise kernels: how inner loops are written and run. */
#ifndef AH_CPU_ELEMENTWISE_H
#define AH_CPU_ELEMENTWISE_H

#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"

/* Run the loop for dtype `in` over out[0] and the first `inputs` arguments. `numbers` (at least 2 doubles) reach
 * the loops as c0 and c1. AH_ENOTIMPL when the op has no loop for that dtype. Halves use the loop for float32, unless
 * the table has one on their bits and all tensors have the dtype `in`. */
int ah_elementwise(struct ah_call *c, int inputs, enum ah_dtype in, enum ah_dtype out, bool scalars,
                   const ah_loop *loops, const double *numbers);

/* The same over two arguments that promote, the result in their common dtype. */
int ah_elementwise_pair(struct ah_call *c, const ah_loop *loops);

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
#define NUMBER_TABLE(name)                                                                              \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                               \
        [AH_U8] = name##_u8, [AH_I32] = name##_i32, [AH_I64] = name##_i64, [AH_F32] = name##_f32,       \
        [AH_F64] = name##_f64}
#define ALL_TABLE(name)                                                                                 \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                               \
        [AH_BOOL] = name##_b8,  [AH_U8] = name##_u8,   [AH_I32] = name##_i32,                           \
        [AH_I64] = name##_i64,  [AH_F32] = name##_f32, [AH_F64] = name##_f64}

#endif
