/* Gates: an activation of one tensor times another, and the gradient of the first. In a separate file, since the
 * compiler no longer inlines functions that many loops of a file call. */
#include "cpu/elementwise/activation_math.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/half_loops.h"

static inline float gate_silu(float x)
{
    return x * ah_sigmoidf(x);
}

static inline float gate_gelu(float x)
{
    return x * ah_normal_below(x);
}

/* An activation of a, times b; and the gradient of c, a * b times its slope there. */
#define GATE(name, of_f32, of_f64, slope_f32, slope_f64)                                                \
    LONG_LOOP2(gated_##name##_f32, float, of_f32(a) * b)                                                \
    LONG_LOOP2(gated_##name##_f64, double, (of_f64) * b)                                                \
    AH_BF16_LOOP2(gated_##name##_turned, of_f32)                                                        \
    static void gated_##name##_bf16(int64_t n, void *const *data, const int64_t *step, const void *context) \
    {                                                                                                   \
        gated_##name##_turned(n, (void *[]){data[0], data[2], data[1]},                                 \
                              (int64_t[]){step[0], step[2], step[1]}, context);                         \
    }                                                                                                   \
    FLOAT_TABLE_BF16(gated_##name);                                                                     \
    LOOP3(gated_##name##_backward_f32, float, float, float, a *b *slope_f32(c))                         \
    LOOP3(gated_##name##_backward_f64, double, double, double, a *b *slope_f64(c))                      \
    AH_BF16_LOOP3(gated_##name##_backward_bf16, slope_f32)                                              \
    FLOAT_TABLE_BF16(gated_##name##_backward);
GATE(silu, gate_silu, a / (1.0 + ah_exp(-a)), ah_silu_slope, ah_silu_slope_f64)
GATE(gelu, gate_gelu, 0.5 * a * (1.0 + ah_erf(a * AH_SQRT_HALF)), ah_gelu_erf_slope, ah_gelu_erf_slope_f64)
GATE(gelu_tanh, ah_gelu_tanh_of, 0.5 * a * (1.0 + ah_tanh(AH_SQRT_2_OVER_PI * (a + 0.044715 * a * a * a))),
     ah_gelu_tanh_slope, ah_gelu_tanh_slope_f64)

int ah_cpu_activation_mul(struct ah_call *c)
{
    return ah_elementwise_result(c, 2, ah_elementwise_has(c, "silu")   ? gated_silu_loops
                                       : ah_elementwise_has(c, "gelu") ? gated_gelu_loops
                                                                       : gated_gelu_tanh_loops);
}

int ah_cpu_activation_mul_backward(struct ah_call *c)
{
    return ah_elementwise_result(c, 3, ah_elementwise_has(c, "silu")   ? gated_silu_backward_loops
                                       : ah_elementwise_has(c, "gelu") ? gated_gelu_backward_loops
                                                                       : gated_gelu_tanh_backward_loops);
}
