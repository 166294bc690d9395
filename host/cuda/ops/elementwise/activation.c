/* Activations and their fused gradients (kernels/elementwise/activation.cu). */
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static int activation_run(struct ah_call *c, struct ah_cuda_kernel *loops, int inputs, const double *numbers)
{
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_cuda_elementwise(c, loops, inputs, dtype, dtype, numbers);
}

#define LOOPS(name) static ah_cuda_loops loops = {AH_CUDA_FLOATS("activation", name)}
#define PLAIN(name, inputs)                            \
    int ah_cuda_##name(struct ah_call *c)              \
    {                                                  \
        LOOPS(#name);                                  \
        return activation_run(c, loops, inputs, NULL); \
    }
/* With a number, which is the argument of that name. */
#define NUMBERED(name, inputs, argument)                                                         \
    int ah_cuda_##name(struct ah_call *c)                                                        \
    {                                                                                            \
        LOOPS(#name);                                                                            \
        return activation_run(c, loops, inputs, (double[4]){ah_args(c, name)->argument.number}); \
    }
PLAIN(sigmoid, 1)
PLAIN(silu, 1)
PLAIN(hardsigmoid, 1)
PLAIN(hardswish, 1)
PLAIN(sloped, 2)
PLAIN(gated, 2)
PLAIN(relu_backward, 2)
PLAIN(tanh_backward, 2)
PLAIN(sigmoid_backward, 2)
PLAIN(silu_backward, 2)
PLAIN(hardswish_backward, 2)
NUMBERED(leaky_relu, 1, negative_slope)
NUMBERED(leaky_relu_backward, 2, negative_slope)
NUMBERED(hardshrink, 1, lambd)
NUMBERED(softshrink, 1, lambd)
NUMBERED(shrink_backward, 2, lambd)

int ah_cuda_threshold(struct ah_call *c)
{
    LOOPS("threshold");
    const struct ah_args_threshold *arg = ah_args(c, threshold);
    return activation_run(c, loops, 1, (double[4]){arg->threshold.number, arg->value.number});
}

static bool is_tanh(const struct ah_value *approximate)
{
    return approximate->string[0] == 't';
}

int ah_cuda_gelu(struct ah_call *c)
{
    static ah_cuda_loops erf_loops = {AH_CUDA_FLOATS("activation", "gelu_erf")};
    static ah_cuda_loops tanh_loops = {AH_CUDA_FLOATS("activation", "gelu_tanh")};
    return activation_run(c, is_tanh(&ah_args(c, gelu)->approximate) ? tanh_loops : erf_loops, 1, NULL);
}

int ah_cuda_gelu_backward(struct ah_call *c)
{
    static ah_cuda_loops erf_loops = {AH_CUDA_FLOATS("activation", "gelu_erf_backward")};
    static ah_cuda_loops tanh_loops = {AH_CUDA_FLOATS("activation", "gelu_tanh_backward")};
    return activation_run(c, is_tanh(&ah_args(c, gelu_backward)->approximate) ? tanh_loops : erf_loops, 2, NULL);
}

int ah_cuda_softplus(struct ah_call *c)
{
    LOOPS("softplus");
    const struct ah_args_softplus *arg = ah_args(c, softplus);
    return activation_run(c, loops, 1, (double[4]){arg->beta.number, arg->threshold.number});
}

static int activation_elu(struct ah_call *c, double scale, double alpha, double input_scale)
{
    LOOPS("elu");
    return activation_run(c, loops, 1, (double[4]){scale, scale * alpha, input_scale});
}

AH_CUDA_OP(elu, activation_elu(c, 1, ah_args(c, elu)->alpha.number, 1))
AH_CUDA_OP_WITH(elu_scaled, elu_scaled,
                activation_elu(c, arg->scale.number, arg->alpha.number, arg->input_scale.number))

int ah_cuda_elu_backward(struct ah_call *c)
{
    LOOPS("elu_backward");
    const struct ah_args_elu_backward *arg = ah_args(c, elu_backward);
    double scale = arg->scale.number;
    return activation_run(c, loops, 2, (double[4]){scale, scale * arg->alpha.number, arg->input_scale.number});
}
