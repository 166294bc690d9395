/* Convolutions with 3x3 kernels by Winograd's minimal filtering F(4x4, 3x3): 36 products of matrices instead of 144
 * multiplications for each tile of 4x4 outputs, a quarter of the arithmetic. In float32 on arrays as in
 * cpu/loop/onednn.h: 1 done, 0 declined, negative for a failure.
 *
 * Results do not depend on the thread count. With the points 0, +-2/3, +-3/2 the root mean square of the rounding
 * error is 1.5 times that of a sum in the order of the channels (256 channels of normal numbers). A NaN or an infinity
 * spreads to the outputs of its tiles. */
#pragma once

#include "ops/nn/conv.h"

/* dst from src and the row-major weight; `bias` may be NULL. */
int ah_conv_winograd(const struct ah_conv *conv, const float *src, const float *weight, const float *bias, float *dst);
/* grad_src, from grad_dst and the weight. */
int ah_conv_winograd_grad_input(const struct ah_conv *conv, const float *grad_dst, const float *weight,
                                float *grad_src);
/* grad_weight, row-major, from src and grad_dst. */
int ah_conv_winograd_grad_weight(const struct ah_conv *conv, const float *src, const float *grad_dst,
                                 float *grad_weight);
