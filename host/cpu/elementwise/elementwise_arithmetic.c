/* Elementwise arithmetic of several inputs: sums, products, powers, the distances of losses. A loop for each dtype is
 * made of one expression (cpu/elementwise/elementwise.h). */
#include <math.h>

#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/float64_vector.h"
#include "cpu/elementwise/half_loops.h"
#include "cpu/elementwise/pair_vector.h"
#include "ops/dispatch/op.h"

/* Arithmetic. Integers wrap around, so their sums and products are made in an unsigned type. */

LOOP2(add_b8, uint8_t, uint8_t, a | (c0 ? b : 0))
LOOP2(add_u8, uint8_t, uint8_t, a + c0 * b)
LOOP2(add_i32, int32_t, int32_t, (uint32_t)a + (uint32_t)c0 * (uint32_t)b)
LOOP2(add_i64, int64_t, int64_t, (uint64_t)a + (uint64_t)c0 * (uint64_t)b)
LOOP2(add_f32, float, float, a + b)
LOOP2(add_f64, double, double, a + b)
LOOP2(sub_f32, float, float, a - b)
LOOP2(sub_f64, double, double, a - b)
AH_HALF_LOOPS2(add, a + b)
AH_HALF_LOOPS2(sub, a - b)
LOOP2(add_scaled_f32, float, float, fmaf(c0, b, a))
LOOP2(add_scaled_f64, double, double, fma(c0, b, a))

const ah_loop *ah_sum_loops(double alpha)
{
#define WHOLE_SUMS [AH_BOOL] = add_b8, [AH_U8] = add_u8, [AH_I32] = add_i32, [AH_I64] = add_i64
    static const ah_loop of_1[AH_DTYPE_COUNT] = {
        WHOLE_SUMS, AH_HALF_ENTRIES(add) [AH_F32] = add_f32, [AH_F64] = add_f64};
    static const ah_loop of_minus_1[AH_DTYPE_COUNT] = {
        WHOLE_SUMS, AH_HALF_ENTRIES(sub) [AH_F32] = sub_f32, [AH_F64] = sub_f64};
    static const ah_loop scaled[AH_DTYPE_COUNT] = {WHOLE_SUMS, [AH_F32] = add_scaled_f32, [AH_F64] = add_scaled_f64};
#undef WHOLE_SUMS
    return alpha == 1 ? of_1 : alpha == -1 ? of_minus_1 : scaled;
}

LOOP2(mul_b8, uint8_t, uint8_t, a & b)
LOOP2(mul_u8, uint8_t, uint8_t, a * b)
LOOP2(mul_i32, int32_t, int32_t, (uint32_t)a * (uint32_t)b)
LOOP2(mul_i64, int64_t, int64_t, (uint64_t)a * (uint64_t)b)
LOOP2(mul_f32, float, float, a * b)
LOOP2(mul_f64, double, double, a * b)
AH_HALF_LOOPS2(mul, a * b)
static const ah_loop mul_loops[AH_DTYPE_COUNT] = {
    AH_HALF_ENTRIES(mul) [AH_BOOL] = mul_b8, [AH_U8] = mul_u8, [AH_I32] = mul_i32, [AH_I64] = mul_i64,
    [AH_F32] = mul_f32, [AH_F64] = mul_f64};
AH_CPU_OP(mul, ah_elementwise_of_two(c, ah_call_promote(c, 2), mul_loops, NULL))

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
LONG_LOOP2(pow_f64, double, ah_pow(a, b))
const ah_loop ah_any_power_loops[AH_DTYPE_COUNT] = {
    [AH_U8] = pow_u8, [AH_I32] = pow_i32, [AH_I64] = pow_i64, [AH_F32] = pow_f32, [AH_F64] = pow_f64};

#define FIXED_POWER(name, expr32, expr64, expr)                                    \
    AH_HALF_LOOPS1(name, expr)                                                     \
    LOOP1(name##_f32, float, float, expr32)                                        \
    LOOP1(name##_f64, double, double, expr64)                                      \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                          \
        AH_HALF_ENTRIES(name) [AH_F32] = name##_f32, [AH_F64] = name##_f64};
FIXED_POWER(pow_2, a *a, a *a, a *a)
FIXED_POWER(pow_3, a *a *a, a *a *a, a *a *a)
FIXED_POWER(pow_half, sqrtf(a), sqrt(a), ah_sqrt_f32(a))
FIXED_POWER(pow_minus_half, 1.0f / sqrtf(a), 1.0 / sqrt(a), 1.0f / ah_sqrt_f32(a))
FIXED_POWER(pow_minus_1, 1.0f / a, 1.0 / a, 1.0f / a)
FIXED_POWER(pow_minus_2, 1.0f / (a * a), 1.0 / (a * a), 1.0f / (a * a))

const ah_loop *ah_power_loops(double exponent)
{
    static const struct {
        double exponent;
        const ah_loop *loops;
    } fixed[] = {{2, pow_2_loops},          {3, pow_3_loops},        {0.5, pow_half_loops},
                 {-0.5, pow_minus_half_loops}, {-1, pow_minus_1_loops}, {-2, pow_minus_2_loops}};
    for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++)
        if (fixed[k].exponent == exponent)
            return fixed[k].loops;
    return NULL;
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
PROMOTED_KERNEL(squared_difference, 2)
FLOAT_BINARY(smooth_l1, smooth_l1_at_f32(fabsf(a - b), c0), smooth_l1_at_f64(fabs(a - b), c0))
FLOAT_BINARY(huber, huber_at_f32(fabsf(a - b), c0), huber_at_f64(fabs(a - b), c0))

/* Three inputs. */

#define LERP_NEAR(fused, weight) fused(weight, b - a, a)
#define LERP_FAR(weight) (b - (b - a) * (1 - (weight)))
LOOP3(lerp_f32, float, float, float, fabsf(c) < 0.5f ? LERP_NEAR(fmaf, c) : LERP_FAR(c))
LOOP3(lerp_f64, double, double, double, fabs(c) < 0.5 ? LERP_NEAR(fma, c) : LERP_FAR(c))
FLOAT_TABLE(lerp);
LOOP2(lerp_near_f32, float, float, LERP_NEAR(fmaf, c0))
LOOP2(lerp_near_f64, double, double, LERP_NEAR(fma, c0))
FLOAT_TABLE(lerp_near);
LOOP2(lerp_far_f32, float, float, LERP_FAR(c0))
LOOP2(lerp_far_f64, double, double, LERP_FAR(c0))
FLOAT_TABLE(lerp_far);

int ah_cpu_lerp(struct ah_call *c)
{
    const struct ah_tensor *weight = ah_args(c, lerp)->weight.tensor;
    enum ah_dtype dtype = c->out[0]->dtype;
    if (weight->numel != 1)
        return ah_elementwise_result(c, 3, lerp_loops);
    double one = ah_tensor_get(weight, 0);
    return ah_elementwise(c, 2, dtype, dtype, fabs(one) < 0.5 ? lerp_near_loops : lerp_far_loops, (double[]){one, 0});
}

LOOP3(addcmul_u8, uint8_t, uint8_t, uint8_t, a + c0 * b * c)
LOOP3(addcmul_i32, int32_t, int32_t, int32_t, (uint32_t)a + (uint32_t)c0 * (uint32_t)b * (uint32_t)c)
LOOP3(addcmul_i64, int64_t, int64_t, int64_t, (uint64_t)a + (uint64_t)c0 * (uint64_t)b * (uint64_t)c)
LOOP3(addcmul_f32, float, float, float, a + c0 * b * c)
LOOP3(addcmul_f64, double, double, double, a + c0 * b * c)
NUMBER_TABLE(addcmul);
PROMOTED_KERNEL(addcmul, 3)

LOOP3(addcdiv_f32, float, float, float, a + c0 * b / c)
LOOP3(addcdiv_f64, double, double, double, a + c0 * b / c)
FLOAT_TABLE(addcdiv);
PROMOTED_KERNEL(addcdiv, 3)
