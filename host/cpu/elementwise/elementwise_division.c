/* Elementwise division and remainders. The integer loops never see a zero divisor (ah_elementwise_divide checks first);
 * the quotient by -1 is written as a negation, because the hardware traps on the smallest integer. */
#include <math.h>

#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/pair_vector.h"

static inline double floor_quotient_f64(double a, double b)
{
    if (b == 0)
        return a / b;
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysign(0, a / b);
    double floored = floor(quotient);
    return quotient - floored > 0.5 ? floored + 1 : floored;
}

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

static inline double modulo_f64(double a, double b)
{
    double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Of float32 the remainder is exact without a loop where quotients are below 2^28, which is checked per block
 * (ah_short_fmodf); other blocks are computed element by element. The values are the same both ways. */
static inline float floor_quotient_f32(float a, float b, float rest)
{
    float value = (a - rest) / b;
    value -= ((rest != 0) & ((b < 0) != (rest < 0))) ? 1.0f : 0.0f;
    float floored = floorf(value);
    floored = value - floored > 0.5f ? floored + 1 : floored;
    floored = value == 0 ? copysignf(0, a / b) : floored;
    return b == 0 ? a / b : floored;
}

static inline float modulo_f32(float rest, float b)
{
    return ((rest != 0) & ((rest < 0) != (b < 0))) ? rest + b : rest;
}

static bool are_short(int64_t n, void *const *data, const int64_t *step)
{
    const float *a = data[1], *b = data[2];
    int far = 0;
    for (int64_t i = 0; i < n; i++)
        far |= !ah_fmod_is_short(a[i * step[1]], b[i * step[2]]);
    return !far;
}

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

#define BY_REST(name, expr_of_short, expr_of_any)                                                              \
    LOOP2(name##_short, float, float, expr_of_short)                                                           \
    LOOP2(name##_any, float, float, expr_of_any)                                                               \
    BY_BLOCKS(name##_f32, float, are_short, name##_short, name##_any)
BY_REST(div_floor, floor_quotient_f32(a, b, ah_short_fmodf(a, b)), floor_quotient_f32(a, b, ah_fmodf(a, b)))
BY_REST(remainder, modulo_f32(ah_short_fmodf(a, b), b), modulo_f32(ah_fmodf(a, b), b))
BY_REST(fmod, ah_short_fmodf(a, b), ah_fmodf(a, b))
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

#define NARROW_AND_F64(name, int_expr, expr64)          \
    LOOP2(name##_u8, uint8_t, uint8_t, int_expr)        \
    LOOP2(name##_i32, int32_t, int32_t, int_expr)       \
    LOOP2(name##_f64, double, double, expr64)           \
    NUMBER_TABLE(name);
#define OTHER_NUMBERS(name, int_expr, expr64)           \
    LOOP2(name##_i64, int64_t, int64_t, int_expr)       \
    NARROW_AND_F64(name, int_expr, expr64)
NARROW_AND_F64(div_floor, floor_quotient(a, b), floor_quotient_f64(a, b))
OTHER_NUMBERS(div_trunc, division_quotient(a, b), trunc(a / b))
OTHER_NUMBERS(remainder, division_modulo(a, b), modulo_f64(a, b))
OTHER_NUMBERS(fmod, rest_of(a, b), fmod(a, b))
LOOP2(div_f32, float, float, a / b)
LOOP2(div_f64, double, double, a / b)
FLOAT_TABLE(div);

int ah_cpu_div(struct ah_call *c)
{
    if (ah_elementwise_has(c, "floor"))
        return ah_elementwise_divide(c, div_floor_loops);
    if (ah_elementwise_has(c, "trunc"))
        return ah_elementwise_divide(c, div_trunc_loops);
    return ah_elementwise_promoted_float(c, 2, div_loops);
}

int ah_cpu_floor_divide(struct ah_call *c)
{
    return ah_elementwise_divide(c, div_floor_loops);
}

int ah_cpu_remainder(struct ah_call *c)
{
    return ah_elementwise_divide(c, remainder_loops);
}

int ah_cpu_fmod(struct ah_call *c)
{
    return ah_elementwise_divide(c, fmod_loops);
}
