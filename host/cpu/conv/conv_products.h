/* Convolutions as products of matrices over the pixels: those of 1x1, those of a kernel as large as the image, and the
 * weight's gradient of strided ones. Arrays and results as in cpu/loop/onednn.h: 1 done, 0 declined, negative for a
 * failure. Scratch memory is one of the arrays of `a`. */
#pragma once

#include "cpu/loop/dense.h"
#include "ops/nn/conv.h"

/* dst from src and the row-major weight; declined with a bias. */
int ah_conv_products(struct ah_arrays *a, const struct ah_conv *conv, bool half, const void *src, const void *weight,
                     const void *bias, void *dst);
/* grad_src, from grad_dst and the weight. */
int ah_conv_products_grad_input(struct ah_arrays *a, const struct ah_conv *conv, bool half, const void *grad_dst,
                                const void *weight, void *grad_src);
/* grad_weight, row-major, from src and grad_dst. */
int ah_conv_products_grad_weight(struct ah_arrays *a, const struct ah_conv *conv, bool half, const void *src,
                                 const void *grad_dst, void *grad_weight);

/* Does the kernel cover the whole image, so that there is one output pixel? It is a linear layer of row-major images.
 * Arrays are row-major, but the gradient of the input is channels-last. */
bool ah_conv_is_whole(const struct ah_conv *conv);
int ah_conv_whole(const struct ah_conv *conv, bool half, const void *src, const void *weight, const void *bias,
                  void *dst);
int ah_conv_whole_grad_input(struct ah_arrays *a, const struct ah_conv *conv, bool half, const void *grad_dst,
                             const void *weight, void *grad_src);
int ah_conv_whole_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                              void *grad_weight);
