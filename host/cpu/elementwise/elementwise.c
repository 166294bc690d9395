/* Elementwise kernels of several inputs: a loop per dtype from one expression (cpu/elementwise/elementwise.h), run by
 * ah_iterate, which handles strides, broadcasting and conversion. The result of an element must not depend on its
 * position in a run. */
#include <math.h>
#include <string.h>

#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/pair_vector.h"
#include "ops/dispatch/op.h"

/* Report whether all tensors of the call have one half dtype, and the table has a loop on its bits. */
static bool elementwise_has_bit_loop(const struct ah_call *c, int inputs, enum ah_dtype in, enum ah_dtype out,
                          const ah_loop *loops)
{
    bool all = loops[in] && in == out && c->out[0]->dtype == in && ah_compute_dtype(in) != in;
    for (int i = 0; i < inputs; i++)
        all = all && c->arg[i].tensor->dtype == in;
    return all;
}

int ah_elementwise(struct ah_call *c, int inputs, enum ah_dtype in, enum ah_dtype out, bool scalars,
                   const ah_loop *loops, const double *numbers)
{
    static const double none[2];
    if (!elementwise_has_bit_loop(c, inputs, in, out, loops)) {
        in = ah_compute_dtype(in);
        out = ah_compute_dtype(out);
    }
    if (!loops[in])
        return ah_fail(AH_ENOTIMPL, "%s: not defined for %s", c->op->name, ah_dtype_name(in));
    struct ah_operand operand[AH_ITER_OPERANDS] = {{c->out[0], out}};
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

LOOP2(pow_u8, uint8_t, uint8_t, integer_power(a, b))
LOOP2(pow_i32, int32_t, int32_t, integer_power(a, b))
LOOP2(pow_i64, int64_t, int64_t, integer_power(a, b))
LOOP2(pow_f32, float, float, ah_powf(a, b))
LOOP2(pow_f64, double, double, pow(a, b))
NUMBER_TABLE(pow);

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

LOOP2(squared_difference_i32, int32_t, int32_t, ((uint32_t)a - (uint32_t)b) * ((uint32_t)a - (uint32_t)b))
LOOP2(squared_difference_i64, int64_t, int64_t, ((uint64_t)a - (uint64_t)b) * ((uint64_t)a - (uint64_t)b))
LOOP2(squared_difference_u8, uint8_t, uint8_t, (a - b) * (a - b))
LOOP2(squared_difference_f32, float, float, (a - b) * (a - b))
LOOP2(squared_difference_f64, double, double, (a - b) * (a - b))
NUMBER_TABLE(squared_difference);
LOOP2(smooth_l1_f32, float, float, smooth_l1_at_f32(fabsf(a - b), c0))
LOOP2(smooth_l1_f64, double, double, smooth_l1_at_f64(fabs(a - b), c0))
LOOP2(huber_f32, float, float, huber_at_f32(fabsf(a - b), c0))
LOOP2(huber_f64, double, double, huber_at_f64(fabs(a - b), c0))
FLOAT_TABLE(smooth_l1);
FLOAT_TABLE(huber);

static int elementwise_distance(struct ah_call *c, const ah_loop *loops)
{
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_elementwise(c, 2, dtype, dtype, true, loops, (double[]){c->arg[2].number, 0});
}

int ah_cpu_squared_difference(struct ah_call *c)
{
    return ah_elementwise_pair(c, squared_difference_loops);
}

int ah_cpu_smooth_l1(struct ah_call *c)
{
    return elementwise_distance(c, smooth_l1_loops);
}

int ah_cpu_huber(struct ah_call *c)
{
    return elementwise_distance(c, huber_loops);
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
