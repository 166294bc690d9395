/* Convolutions with 3x3 kernels by Winograd's minimal filtering F(4x4, 3x3): 36 products of matrices instead of 144
 * multiplications for each tile of 4x4 outputs. Others are sums of such convolutions, or of those by F(4x4, 2x2), 25
 * instead of 64: over parts of a larger kernel (4x4 to 7x7), with stride 2 over the four phases of the input (4x4 to
 * 6x6). In float32 on arrays as in cpu/loop/onednn.h: 1 done, negative for a failure; only where they pay.
 *
 * Results do not depend on the thread count. With the points 0, +-2/3, +-3/2, or 0, +-2/3, 2 of F(4x4, 2x2), the root
 * mean square of the rounding error is 1.5 times that of a sum in the order of the channels, or 2.1 times (256 channels
 * of normal numbers). A NaN or an infinity spreads to the outputs of its tiles. */
#pragma once

#include "ops/nn/conv.h"

/* Is the geometry one of these, and large enough? Tiles that extend far beyond the output, and few tiles for the
 * transform of the weights, do not pay. With `half` other forms would multiply in bfloat16. */
bool ah_conv_winograd_pays(const struct ah_conv *conv, bool half);
bool ah_conv_winograd_pays_grad_weight(const struct ah_conv *conv, bool half);
bool ah_conv_winograd_pays_grad_input(const struct ah_conv *conv, bool half);
/* dst from src and the row-major weight; `bias` may be NULL. With `half` the images are bfloat16: they are widened in
 * their transform and rounded once as outputs. */
int ah_conv_winograd(const struct ah_conv *conv, bool half, const void *src, const float *weight, const float *bias,
                     void *dst);
/* grad_src, from grad_dst and the weight. */
int ah_conv_winograd_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const float *weight,
                                void *grad_src);
/* grad_weight, row-major, from src and grad_dst. */
int ah_conv_winograd_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                                 float *grad_weight);
