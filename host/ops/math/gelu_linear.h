/* Kernels of gelu_linear and its gradients, made of the device's kernels of their parts (ops/math/gelu_linear.c). */
#pragma once

#include "ops/dispatch/op.h"

/* Is gelu's result of x made in more than one block? Then the gradient of the weight is a sum of theirs. */
bool ah_gelu_linear_has_blocks(const struct ah_tensor *x);

/* The kernels of gelu_linear, gelu_linear_backward and gelu_linear_weight_backward. */
int ah_gelu_linear_in_blocks(struct ah_call *c);
int ah_gelu_linear_backward_in_blocks(struct ah_call *c);
int ah_gelu_linear_weight_backward_in_blocks(struct ah_call *c);
