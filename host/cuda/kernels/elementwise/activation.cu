/* Activations, and their fused gradients: of those a is the incoming gradient, b the tensor that the forward saved. */
#include "cuda/kernels/lib/activation.cuh"
#include "cuda/kernels/lib/elementwise.cuh"

AH_EW1_FLOATS(sigmoid, ah_sigmoid(a))
AH_EW1_FLOATS(silu, a *ah_sigmoid(a))
AH_EW1_FLOATS(gelu_erf, T(0.5) * a * (T(1) + erf(a * T(AH_SQRT_HALF))))
AH_EW1_FLOATS(gelu_tanh, ah_gelu_tanh(a))
AH_EW1_FLOATS(softplus, a *c0 > c1 ? a : log1p(exp(a * c0)) / c0)
AH_EW1_FLOATS(leaky_relu, a > 0 ? a : a * c0)
/* A nan fails every comparison and stays. */
AH_EW1_FLOATS(hardsigmoid, (a < T(-3) ? T(0) : a > T(3) ? T(6) : a + T(3)) / T(6))
AH_EW1_FLOATS(hardswish, a *(a < T(-3) ? T(0) : a > T(3) ? T(6) : a + T(3)) / T(6))
AH_EW1_FLOATS(hardshrink, a >= -c0 && a <= c0 ? T(0) : a)
AH_EW1_FLOATS(softshrink, a > c0 ? a - c0 : a < -c0 ? a + c0 : a * T(0))
AH_EW1_FLOATS(threshold, a <= c0 ? c1 : a)
/* c0: scale, c1: scale * alpha, c2: the input's scale. */
AH_EW1_FLOATS(elu, a > 0 ? a * c0 : c1 * expm1((a > 0 ? T(0) : a) * c2))
AH_EW2_FLOATS(elu_backward, a *(b > 0 ? c0 : c1 * c2 * exp((b > 0 ? T(0) : b) * c2)))

AH_EW2_FLOATS(sloped, a > 0 ? a : a * b)
AH_EW2_FLOATS(gated, a *ah_sigmoid(b))

AH_EW2_FLOATS(relu_backward, b <= 0 ? T(0) : a)
AH_EW2_FLOATS(tanh_backward, a *(T(1) - b * b))
AH_EW2_FLOATS(sigmoid_backward, a *(T(1) - b) * b)
AH_EW2_FLOATS(silu_backward, a *ah_silu_slope(b))
AH_EW2_FLOATS(hardswish_backward, b > T(-3) && b < T(3) ? a *(b / T(3) + T(0.5)) : b <= T(-3) ? T(0) : a)
AH_EW2_FLOATS(leaky_relu_backward, b > 0 ? a : a * c0)
AH_EW2_FLOATS(shrink_backward, b >= -c0 && b <= c0 ? T(0) : a)
AH_EW2_FLOATS(gelu_erf_backward, a *ah_gelu_erf_slope(b))
AH_EW2_FLOATS(gelu_tanh_backward, a *ah_gelu_tanh_slope(b))
