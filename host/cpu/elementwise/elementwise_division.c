/* Elementwise division and remainders. The integer loops never see a zero divisor (ah_elementwise_divide checks first);
 * the quotient by -1 is written as a negation, because the hardware traps on the smallest integer. */
#include <math.h>

#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/float64_vector.h"
#include "cpu/elementwise/half_loops.h"
#include "ops/dispatch/op.h"
#include "cpu/elementwise/pair_vector.h"

static inline int64_t division_quotient(int64_t a, int64_t b)
{
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static inline int64_t rest_of(int64_t a, int64_t b)
{
    return b == -1 ? 0 : a % b;
}

static inline int64_t floor_quotient(int64_t a, int64_t b)
{
    return division_quotient(a, b) - (rest_of(a, b) != 0 && (a < 0) != (b < 0));
}

static inline int64_t division_modulo(int64_t a, int64_t b)
{
    int64_t rest = rest_of(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Of floats the remainder is exact without a loop where quotients are below 2^28 or, of float64, 2^51, which is checked
 * per block (ah_short_fmodf, ah_short_fmod); other blocks are computed element by element. The values are the same both
 * ways. */
#define FLOAT_QUOTIENTS(t, type, of_sign, floor_of, is_short)                                                  \
    static inline type floor_quotient_##t(type a, type b, type rest)                                           \
    {                                                                                                          \
        type value = (a - rest) / b;                                                                           \
        value -= ((rest != 0) & ((b < 0) != (rest < 0))) ? 1 : 0;                                              \
        type floored = floor_of(value);                                                                        \
        floored = value - floored > (type)0.5 ? floored + 1 : floored;                                         \
        floored = value == 0 ? of_sign(0, a / b) : floored;                                                    \
        return b == 0 ? a / b : floored;                                                                       \
    }                                                                                                          \
    static inline type modulo_##t(type rest, type b)                                                           \
    {                                                                                                          \
        return ((rest != 0) & ((rest < 0) != (b < 0))) ? rest + b : rest;                                      \
    }                                                                                                          \
    static bool are_short_##t(int64_t n, void *const *data, const int64_t *step)                               \
    {                                                                                                          \
        const type *a = data[1], *b = data[2];                                                                 \
        int far = 0;                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                                        \
            far |= !is_short(a[i * step[1]], b[i * step[2]]);                                                  \
        return !far;                                                                                           \
    }
FLOAT_QUOTIENTS(f32, float, copysignf, floorf, ah_fmod_is_short)
FLOAT_QUOTIENTS(f64, double, copysign, floor, ah_fmod_is_short_f64)

/* A loop `name` that runs `fast` on blocks whose inputs pass a test, else `any`. */
#define BY_BLOCKS(name, type, test, fast, any)                                                                 \
    static void name(int64_t n, void *const *data, const int64_t *step, const void *context)                   \
    {                                                                                                          \
        enum { BLOCK = 512 };                                                                                  \
        for (int64_t begin = 0; begin < n; begin += BLOCK) {                                                   \
            int64_t count = n - begin < BLOCK ? n - begin : BLOCK;                                             \
            void *at[] = {(type *)data[0] + begin, (type *)data[1] + begin * step[1],                          \
                          (type *)data[2] + begin * step[2]};                                                  \
            (test(count, at, step) ? fast : any)(count, at, step, context);                                    \
        }                                                                                                      \
    }

#define BY_REST(name, t, type, expr_of_short, expr_of_any)                                                     \
    LONG_LOOP2(name##_short_##t, type, expr_of_short)                                                          \
    LOOP_HEAD(name##_any_##t, type)                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                      \
            const type a = ((const type *)data[1])[i * step[1]], b = ((const type *)data[2])[i * step[2]];     \
            ((type *)data[0])[i] = (expr_of_any);                                                              \
        }                                                                                                      \
    }                                                                                                          \
    BY_BLOCKS(name##_##t, type, are_short_##t, name##_short_##t, name##_any_##t)
BY_REST(div_floor, f32, float, floor_quotient_f32(a, b, ah_short_fmodf(a, b)), floor_quotient_f32(a, b, ah_fmodf(a, b)))
BY_REST(div_floor, f64, double, floor_quotient_f64(a, b, ah_short_fmod(a, b)), floor_quotient_f64(a, b, ah_fmod(a, b)))
BY_REST(remainder, f32, float, modulo_f32(ah_short_fmodf(a, b), b), modulo_f32(ah_fmodf(a, b), b))
BY_REST(remainder, f64, double, modulo_f64(ah_short_fmod(a, b), b), modulo_f64(ah_fmod(a, b), b))
BY_REST(fmod, f32, float, ah_short_fmodf(a, b), ah_fmodf(a, b))
BY_REST(fmod, f64, double, ah_short_fmod(a, b), ah_fmod(a, b))
LOOP2(div_trunc_f32, float, float, truncf(a / b))

/* The floor of the quotient of int64 in float64, which vectorises, is exact where both are below 2^52 in magnitude:
 * then a quotient that is not whole is farther from a whole number than it is rounded. */
static bool are_below_2_52(int64_t n, void *const *data, const int64_t *step)
{
    const uint64_t bound = UINT64_C(1) << 52;
    uint64_t high = 0;
    for (int k = 1; k <= 2; k++) {
        const int64_t *x = data[k];
        for (int64_t i = 0, count = step[k] ? n : 1; i < count; i++)
            high |= (uint64_t)x[i] + bound;
    }
    return high < 2 * bound;
}

LOOP2(div_floor_near, int64_t, int64_t, floor((double)a / (double)b))
LOOP2(div_floor_far, int64_t, int64_t, floor_quotient(a, b))
BY_BLOCKS(div_floor_i64, int64_t, are_below_2_52, div_floor_near, div_floor_far)

#define NARROW(name, int_expr)                          \
    LOOP2(name##_u8, uint8_t, uint8_t, int_expr)        \
    LOOP2(name##_i32, int32_t, int32_t, int_expr)       \
    NUMBER_TABLE(name);
#define INTEGERS(name, int_expr)                        \
    LOOP2(name##_i64, int64_t, int64_t, int_expr)       \
    NARROW(name, int_expr)
LOOP2(div_trunc_f64, double, double, trunc(a / b))
NARROW(div_floor, floor_quotient(a, b))
INTEGERS(div_trunc, division_quotient(a, b))
INTEGERS(remainder, division_modulo(a, b))
INTEGERS(fmod, rest_of(a, b))
LOOP2(div_f32, float, float, a / b)
LOOP2(div_f64, double, double, a / b)
AH_HALF_LOOPS2(div, a / b)
static const ah_loop div_loops[AH_DTYPE_COUNT] = {AH_HALF_ENTRIES(div) [AH_F32] = div_f32, [AH_F64] = div_f64};

int ah_cpu_div(struct ah_call *c)
{
    if (ah_elementwise_has(c, "floor"))
        return ah_elementwise_divide(c, div_floor_loops);
    if (ah_elementwise_has(c, "trunc"))
        return ah_elementwise_divide(c, div_trunc_loops);
    enum ah_dtype dtype = ah_call_promote(c, 2);
    return ah_elementwise_of_two(c, ah_dtype_is_float(dtype) ? dtype : AH_F32, div_loops, NULL);
}

AH_CPU_OP(floor_divide, ah_elementwise_divide(c, div_floor_loops))
AH_CPU_OP(remainder, ah_elementwise_divide(c, remainder_loops))
AH_CPU_OP(fmod, ah_elementwise_divide(c, fmod_loops))
