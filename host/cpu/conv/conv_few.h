/* Convolutions with few output channels (images of 3 colours), where a library's vectors of output channels are mostly
 * empty. Arrays and results as in cpu/loop/onednn.h: 1 done, negative for a failure; only where they pay. The images
 * may be bfloat16 (`half`), computed in float32 and rounded once. Results do not depend on the number of threads. */
#pragma once

#include "ops/nn/conv.h"

/* Is the convolution, or the gradient of its input, one of these? With `half` other forms multiply in bfloat16. */
bool ah_conv_few_pays(const struct ah_conv *conv, bool half);
bool ah_conv_few_pays_grad_input(const struct ah_conv *conv, bool half);

/* dst from src and the row-major weight; `bias` may be NULL. */
int ah_conv_few(const struct ah_conv *conv, bool half, const void *src, const float *weight, const float *bias,
                void *dst);
/* grad_src, from grad_dst and the weight. */
int ah_conv_few_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const float *weight,
                           void *grad_src);
