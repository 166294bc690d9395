/* Kernels of the activations with numbers or a second input: the family of elu, the shrinks, prelu and glu, with the
 * fused gradients of the first two. */

#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "ops/dispatch/op.h"

struct elu {
    double above, below, input_scale; /* scale, scale * alpha */
};

/* The exponential is of min(x, 0) for every x: a choice between values needs no branch. */
#define ELU(type, suffix, expm1_of, exp_of)                                                                    \
    static void elu_##suffix(int64_t n, void *const *data, const int64_t *step, const void *context)           \
    {                                                                                                          \
        const struct elu *elu = context;                                                                       \
        const type above = (type)elu->above, below = (type)elu->below, scale = (type)elu->input_scale;         \
        type *y = data[0];                                                                                     \
        const type *x = data[1];                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                                      \
            const type a = x[i], low = below * expm1_of((a > 0 ? 0 : a) * scale);                              \
            y[i] = a > 0 ? a * above : low;                                                                    \
        }                                                                                                      \
    }                                                                                                          \
    static void elu_backward_##suffix(int64_t n, void *const *data, const int64_t *step, const void *context)  \
    {                                                                                                          \
        const struct elu *elu = context;                                                                       \
        const type above = (type)elu->above, scale = (type)elu->input_scale, below = (type)elu->below * scale; \
        type *y = data[0];                                                                                     \
        const type *g = data[1], *x = data[2];                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                                      \
            const type a = x[i], low = below * exp_of((a > 0 ? 0 : a) * scale);                                \
            y[i] = g[i] * (a > 0 ? above : low);                                                               \
        }                                                                                                      \
    }
ELU(float, f32, ah_expm1f, ah_expf)
ELU(double, f64, ah_expm1, ah_exp)

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
