/* Elementwise kernels of several inputs: a loop per dtype from one expression (cpu/elementwise.h), run by ah_iterate,
 * which sees to strides, broadcasting and conversion. Loops must give an element the same value wherever it lies in a
 * run. */
#include <math.h>
#include <string.h>

#include "cpu/elementwise.h"

int ah_elementwise(struct ah_call *c, int inputs, enum ah_dtype in, enum ah_dtype out, bool scalars,
                   const ah_loop *loops, const double *numbers)
{
    static const double none[2];
    in = ah_compute_dtype(in);
    if (!loops[in])
        return ah_fail(AH_ENOTIMPL, "%s: not defined for %s", c->op->name, ah_dtype_name(in));
    struct ah_operand operand[AH_ITER_OPERANDS] = {{c->out[0], ah_compute_dtype(out)}};
    for (int i = 0; i < inputs; i++)
        operand[i + 1] = (struct ah_operand){c->arg[i].tensor, in};
    return ah_iterate(operand, inputs + 1, scalars, loops[in], numbers ? numbers : none);
}

int ah_elementwise_pair(struct ah_call *c, const ah_loop *loops)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    return ah_elementwise(c, 2, dtype, dtype, true, loops, NULL);
}

/* Arithmetic. Integers wrap around, so their sums and products are made in an unsigned type. */

LOOP2(add_b8, uint8_t, uint8_t, a | (c0 ? b : 0))
LOOP2(add_u8, uint8_t, uint8_t, a + c0 * b)
LOOP2(add_i32, int32_t, int32_t, (uint32_t)a + (uint32_t)c0 * (uint32_t)b)
LOOP2(add_i64, int64_t, int64_t, (uint64_t)a + (uint64_t)c0 * (uint64_t)b)
LOOP2(add_f32, float, float, a + b)
LOOP2(add_f64, double, double, a + b)
ALL_TABLE(add);
LOOP2(sub_f32, float, float, a - b)
LOOP2(sub_f64, double, double, a - b)
LOOP2(add_scaled_f32, float, float, fmaf(c0, b, a))
LOOP2(add_scaled_f64, double, double, fma(c0, b, a))

static int add_scaled(struct ah_call *c, double alpha)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    double numbers[2] = {alpha, 0};
    ah_loop loops[AH_DTYPE_COUNT];
    memcpy(loops, add_loops, sizeof loops);
    if (alpha == -1) {
        loops[AH_F32] = sub_f32;
        loops[AH_F64] = sub_f64;
    } else if (alpha != 1) {
        loops[AH_F32] = add_scaled_f32;
        loops[AH_F64] = add_scaled_f64;
    }
    return ah_elementwise(c, 2, dtype, dtype, true, loops, numbers);
}

int ah_cpu_add(struct ah_call *c)
{
    return add_scaled(c, ah_args(c, add)->alpha.number);
}

int ah_cpu_sub(struct ah_call *c)
{
    return add_scaled(c, -ah_args(c, sub)->alpha.number);
}

LOOP2(mul_b8, uint8_t, uint8_t, a & b)
LOOP2(mul_u8, uint8_t, uint8_t, a * b)
LOOP2(mul_i32, int32_t, int32_t, (uint32_t)a * (uint32_t)b)
LOOP2(mul_i64, int64_t, int64_t, (uint64_t)a * (uint64_t)b)
LOOP2(mul_f32, float, float, a * b)
LOOP2(mul_f64, double, double, a * b)
ALL_TABLE(mul);

int ah_cpu_mul(struct ah_call *c)
{
    return ah_elementwise_pair(c, mul_loops);
}

/* Division and remainders. The integer loops never see a zero divisor (`divide` looks first); the quotient by -1 is
 * written as a negation, because the hardware traps on the smallest integer. */

/* Integers have no infinity to give: PyTorch raises, and the hardware would trap. What counts is the divisor that the
 * loops see: 256 is 0 in uint8. */
static int refuse_zero_divisor(const struct ah_call *c, enum ah_dtype dtype)
{
    struct ah_tensor *divisor = NULL;
    AH_TRY(ah_contiguous_as(&divisor, ah_args(c, div)->other.tensor, dtype));
    size_t item = ah_dtype_size(dtype);
    const char *at = ah_tensor_data(divisor);
    static const char zero[sizeof(int64_t)];
    int64_t i = 0;
    while (i < divisor->numel && memcmp(at + (size_t)i * item, zero, item) != 0)
        i++;
    int status = 0;
    if (i < divisor->numel && c->out[0]->numel > 0) {
        status = ah_fail(AH_EINVAL, "%s: division of integers by zero (the divisor in %s, at position %lld)",
                         c->op->name, ah_dtype_name(dtype), (long long)i);
    }
    ah_tensor_release(divisor);
    return status;
}

static int divide(struct ah_call *c, const ah_loop *loops)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    if (!ah_dtype_is_float(dtype))
        AH_TRY(refuse_zero_divisor(c, dtype));
    return ah_elementwise_pair(c, loops);
}

static inline float floor_quotient_f32(float a, float b)
{
    if (b == 0)
        return a / b;
    float rest = fmodf(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysignf(0, a / b);
    float floored = floorf(quotient);
    return quotient - floored > 0.5f ? floored + 1 : floored;
}

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

static inline int64_t quotient(int64_t a, int64_t b)
{
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static inline int64_t rest_of(int64_t a, int64_t b)
{
    return b == -1 ? 0 : a % b;
}

static inline int64_t floor_quotient(int64_t a, int64_t b)
{
    return quotient(a, b) - (rest_of(a, b) != 0 && (a < 0) != (b < 0));
}

static inline int64_t modulo(int64_t a, int64_t b)
{
    int64_t rest = rest_of(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline float modulo_f32(float a, float b)
{
    float rest = fmodf(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline double modulo_f64(double a, double b)
{
    double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

#define NUMBER_BINARY(name, int_expr, expr32, expr64)   \
    LOOP2(name##_u8, uint8_t, uint8_t, int_expr)        \
    LOOP2(name##_i32, int32_t, int32_t, int_expr)       \
    LOOP2(name##_i64, int64_t, int64_t, int_expr)       \
    LOOP2(name##_f32, float, float, expr32)             \
    LOOP2(name##_f64, double, double, expr64)           \
    NUMBER_TABLE(name);

NUMBER_BINARY(div_floor, floor_quotient(a, b), floor_quotient_f32(a, b), floor_quotient_f64(a, b))
NUMBER_BINARY(div_trunc, quotient(a, b), truncf(a / b), trunc(a / b))
NUMBER_BINARY(remainder, modulo(a, b), modulo_f32(a, b), modulo_f64(a, b))
NUMBER_BINARY(fmod, rest_of(a, b), fmodf(a, b), fmod(a, b))
LOOP2(div_f32, float, float, a / b)
LOOP2(div_f64, double, double, a / b)
FLOAT_TABLE(div);

int ah_cpu_div(struct ah_call *c)
{
    const struct ah_args_div *arg = ah_args(c, div);
    if (arg->rounding_mode.kind == AH_STRING)
        return divide(c, arg->rounding_mode.string[0] == 'f' ? div_floor_loops : div_trunc_loops);
    enum ah_dtype dtype = ah_call_promote(c, 2);
    if (!ah_dtype_is_float(dtype))
        dtype = AH_F32;
    return ah_elementwise(c, 2, dtype, dtype, true, div_loops, NULL);
}

int ah_cpu_floor_divide(struct ah_call *c)
{
    return divide(c, div_floor_loops);
}

int ah_cpu_remainder(struct ah_call *c)
{
    return divide(c, remainder_loops);
}

int ah_cpu_fmod(struct ah_call *c)
{
    return divide(c, fmod_loops);
}

/* Powers. */

static inline int64_t integer_power(int64_t base, int64_t exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t result = 1, factor = (uint64_t)base;
    for (uint64_t left = (uint64_t)exponent; left; left >>= 1, factor *= factor)
        if (left & 1)
            result *= factor;
    return (int64_t)result;
}

NUMBER_BINARY(pow, integer_power(a, b), powf(a, b), pow(a, b))

#define FIXED_POWER(name, expr32, expr64)    \
    LOOP2(name##_f32, float, float, expr32)  \
    LOOP2(name##_f64, double, double, expr64)\
    FLOAT_TABLE(name);
FIXED_POWER(pow_2, a *a, a *a)
FIXED_POWER(pow_3, a *a *a, a *a *a)
FIXED_POWER(pow_half, sqrtf(a), sqrt(a))
FIXED_POWER(pow_minus_half, 1.0f / sqrtf(a), 1.0 / sqrt(a))
FIXED_POWER(pow_minus_1, 1.0f / a, 1.0 / a)
FIXED_POWER(pow_minus_2, 1.0f / (a * a), 1.0 / (a * a))

int ah_cpu_pow(struct ah_call *c)
{
    static const struct {
        double exponent;
        const ah_loop *loops;
    } fixed[] = {{2, pow_2_loops},          {3, pow_3_loops},        {0.5, pow_half_loops},
                 {-0.5, pow_minus_half_loops}, {-1, pow_minus_1_loops}, {-2, pow_minus_2_loops}};
    const struct ah_tensor *exponent = ah_args(c, pow)->exponent.tensor;
    enum ah_dtype dtype = ah_call_promote(c, 2);
    if (exponent->wrapped && ah_dtype_is_float(dtype)) {
        double value = ah_tensor_get(exponent, 0);
        for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++)
            if (fixed[k].exponent == value)
                return ah_elementwise_pair(c, fixed[k].loops);
    }
    return ah_elementwise_pair(c, pow_loops);
}

/* Distances of losses: quadratic below c0, linear above. */

static inline float smooth_l1_at_f32(float z, float beta)
{
    return z < beta ? 0.5f * z * z / beta : z - 0.5f * beta;
}

static inline double smooth_l1_at_f64(double z, double beta)
{
    return z < beta ? 0.5 * z * z / beta : z - 0.5 * beta;
}

static inline float huber_at_f32(float z, float delta)
{
    return z <= delta ? 0.5f * z * z : delta * (z - 0.5f * delta);
}

static inline double huber_at_f64(double z, double delta)
{
    return z <= delta ? 0.5 * z * z : delta * (z - 0.5 * delta);
}

LOOP2(smooth_l1_f32, float, float, smooth_l1_at_f32(fabsf(a - b), c0))
LOOP2(smooth_l1_f64, double, double, smooth_l1_at_f64(fabs(a - b), c0))
LOOP2(huber_f32, float, float, huber_at_f32(fabsf(a - b), c0))
LOOP2(huber_f64, double, double, huber_at_f64(fabs(a - b), c0))
FLOAT_TABLE(smooth_l1);
FLOAT_TABLE(huber);

static int distance(struct ah_call *c, const ah_loop *loops)
{
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_elementwise(c, 2, dtype, dtype, true, loops, (double[]){c->arg[2].number, 0});
}

int ah_cpu_smooth_l1(struct ah_call *c)
{
    return distance(c, smooth_l1_loops);
}

int ah_cpu_huber(struct ah_call *c)
{
    return distance(c, huber_loops);
}

/* Three inputs. */

LOOP3(lerp_f32, float, float, float, fabsf(c) < 0.5f ? fmaf(c, b - a, a) : b - (b - a) * (1.0f - c))
LOOP3(lerp_f64, double, double, double, fabs(c) < 0.5 ? fma(c, b - a, a) : b - (b - a) * (1.0 - c))
FLOAT_TABLE(lerp);

int ah_cpu_lerp(struct ah_call *c)
{
    return ah_elementwise(c, 3, c->out[0]->dtype, c->out[0]->dtype, false, lerp_loops, NULL);
}

LOOP3(addcmul_u8, uint8_t, uint8_t, uint8_t, a + c0 * b * c)
LOOP3(addcmul_i32, int32_t, int32_t, int32_t, (uint32_t)a + (uint32_t)c0 * (uint32_t)b * (uint32_t)c)
LOOP3(addcmul_i64, int64_t, int64_t, int64_t, (uint64_t)a + (uint64_t)c0 * (uint64_t)b * (uint64_t)c)
LOOP3(addcmul_f32, float, float, float, a + c0 * b * c)
LOOP3(addcmul_f64, double, double, double, a + c0 * b * c)
NUMBER_TABLE(addcmul);
LOOP3(addcdiv_f32, float, float, float, a + c0 * b / c)
LOOP3(addcdiv_f64, double, double, double, a + c0 * b / c)
FLOAT_TABLE(addcdiv);

int ah_cpu_addcmul(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 3);
    return ah_elementwise(c, 3, dtype, dtype, false, addcmul_loops, (double[]){ah_args(c, addcmul)->value.number, 0});
}

int ah_cpu_addcdiv(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 3);
    return ah_elementwise(c, 3, dtype, dtype, false, addcdiv_loops, (double[]){ah_args(c, addcdiv)->value.number, 0});
}
