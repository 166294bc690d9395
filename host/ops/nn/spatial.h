/* Geometry that the forwards of images and their kernels share. */
#pragma once

#include "ops/dispatch/op.h"

/* Windows on (N, C, H, W): output pixel (oy, ox) has those of input rows oy * stride - padding + i * dilation. */
struct ah_patches {
    int64_t n, c, h, w, oh, ow;
    int64_t kernel[2], dilation[2], padding[2], stride[2];
};

/* The windows of four list arguments from arg `at` on, over an image of h x w. AH_EINVAL where none fits. */
int ah_patches_of(struct ah_patches *p, const struct ah_call *c, int at, int64_t h, int64_t w);
