/* Kernels of the activations with numbers or a second input: the family of elu, the shrinks, prelu and glu, with the
 * fused gradients of the first two. */

#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "ops/dispatch/op.h"

struct elu {
    double above, below, input_scale; /* scale, scale * alpha */
};

/* The exponential is of min(x, 0) for every x: a choice between values needs no branch. */
static void elu_f64(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    const struct elu *elu = context;
    double *y = data[0];
    const double *x = data[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i], low = elu->below * ah_expm1((a > 0 ? 0 : a) * elu->input_scale);
        y[i] = a > 0 ? a * elu->above : low;
    }
}

static void elu_backward_f64(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    const struct elu *elu = context;
    const double above = elu->above, scale = elu->input_scale, below = elu->below * scale;
    double *y = data[0];
    const double *g = data[1], *x = data[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i], low = below * ah_exp((a > 0 ? 0 : a) * scale);
        y[i] = g[i] * (a > 0 ? above : low);
    }
}

/* Those of float32, a vector at a time. The last one is filled up. */
enum { ELU_WIDTH = AH_LANES_BYTES / (int)sizeof(float) };

static void elu_f32(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    const struct elu *elu = context;
    const ah_lanes_f32 zero = {0}, above = ah_spread_f32((float)elu->above), below = ah_spread_f32((float)elu->below);
    const ah_lanes_f32 scale = ah_spread_f32((float)elu->input_scale);
    float *y = data[0], last[ELU_WIDTH] = {0};
    const float *x = data[1];
    for (int64_t i = 0; i < n; i += ELU_WIDTH) {
        size_t left = n - i < ELU_WIDTH ? (size_t)(n - i) * sizeof *y : 0;
        const float *from = left ? memcpy(last, x + i, left) : x + i;
        const ah_lanes_f32 a = *(const ah_lanes_at_f32 *)from, low = ah_smaller_f32(zero, a) * scale;
        *(ah_lanes_at_f32 *)(left ? last : y + i) = ah_choose_f32(a > zero, a * above, below * ah_expm1_f32(low));
        if (left)
            memcpy(y + i, last, left);
    }
}

static void elu_backward_f32(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    const struct elu *elu = context;
    const float factor = (float)elu->below * (float)elu->input_scale;
    const ah_lanes_f32 zero = {0}, above = ah_spread_f32((float)elu->above), below = ah_spread_f32(factor);
    const ah_lanes_f32 scale = ah_spread_f32((float)elu->input_scale);
    float *y = data[0], last[ELU_WIDTH] = {0}, last_g[ELU_WIDTH] = {0};
    const float *g = data[1], *x = data[2];
    for (int64_t i = 0; i < n; i += ELU_WIDTH) {
        size_t left = n - i < ELU_WIDTH ? (size_t)(n - i) * sizeof *y : 0;
        const float *from = left ? memcpy(last, x + i, left) : x + i;
        const float *grad = left ? memcpy(last_g, g + i, left) : g + i;
        const ah_lanes_f32 a = *(const ah_lanes_at_f32 *)from, low = ah_smaller_f32(zero, a) * scale;
        *(ah_lanes_at_f32 *)(left ? last : y + i) =
            *(const ah_lanes_at_f32 *)grad * ah_choose_f32(a > zero, above, below * ah_exp_f32(low));
        if (left)
            memcpy(y + i, last, left);
    }
}

static int run_elu(struct ah_call *c, int inputs, ah_loop f32, ah_loop f64, const struct elu *elu)
{
    enum ah_dtype dtype = ah_compute_dtype(c->out[0]->dtype);
    struct ah_operand operand[3] = {{c->out[0], dtype}};
    for (int i = 0; i < inputs; i++)
        operand[i + 1] = (struct ah_operand){c->arg[i].tensor, dtype};
    return ah_iterate(operand, inputs + 1, false, dtype == AH_F64 ? f64 : f32, elu, AH_SHARE_MIDDLE);
}

AH_CPU_OP(elu, run_elu(c, 1, elu_f32, elu_f64, &(struct elu){1, ah_args(c, elu)->alpha.number, 1}))

int ah_cpu_elu_scaled(struct ah_call *c)
{
    const struct ah_args_elu_scaled *arg = ah_args(c, elu_scaled);
    double scale = arg->scale.number;
    return run_elu(c, 1, elu_f32, elu_f64, &(struct elu){scale, scale * arg->alpha.number, arg->input_scale.number});
}

int ah_cpu_elu_backward(struct ah_call *c)
{
    const struct ah_args_elu_backward *arg = ah_args(c, elu_backward);
    struct elu elu = {arg->scale.number, arg->scale.number * arg->alpha.number, arg->input_scale.number};
    return run_elu(c, 2, elu_backward_f32, elu_backward_f64, &elu);
}

#define ONE_INPUT(name, expr)                                                                                  \
    LOOP1(name##_f32, float, float, expr)                                                                      \
    LOOP1(name##_f64, double, double, expr)                                                                    \
    FLOAT_TABLE(name);                                                                                         \
    RESULT_KERNEL(name, 1)

/* A nan fails every comparison and stays. */
ONE_INPUT(hardshrink, a >= -c0 && a <= c0 ? 0 : a)
ONE_INPUT(softshrink, a > c0 ? a - c0 : a < -c0 ? a + c0 : a * 0)
ONE_INPUT(threshold, a <= c0 ? c1 : a)
FLOAT_BINARY(shrink_backward, b >= -c0 && b <= c0 ? 0 : a, b >= -c0 && b <= c0 ? 0 : a)
FLOAT_BINARY(sloped, a > 0 ? a : a * b, a > 0 ? a : a * b)
FLOAT_BINARY(gated, a *ah_sigmoidf(b), a *ah_sigmoid(b))
