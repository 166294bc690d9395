/* Convolution kernels of our own where they beat oneDNN's (measured): the weight's gradient in float32, on processors
 * with AVX-512. Arrays and results as in cpu/loop/onednn.h: 1 done, 0 declined, negative for a failure. */
#pragma once

#include "ops/nn/conv.h"

/* Does this kernel support the shape? */
bool ah_conv_direct_fits(const struct ah_conv *conv);

/* grad_weight, row-major, from channels-last src and grad_dst. The result does not depend on the thread count. */
int ah_conv_direct_grad_weight(const struct ah_conv *conv, const float *src, const float *grad_dst,
                               float *grad_weight);
