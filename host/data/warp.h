/* Rotated, shifted and stretched images: every output pixel is sampled at the place of the input that an affine map
 * computes.
 *
 * The places and the interpolation are those of torchvision's affine transforms. Any thread may call. */
#pragma once

#include "tensor/tensor.h"

struct ah_warp {
    double matrix[6]; /* output to input: x = m0 x + m1 y + m2, y = m3 x + m4 y + m5, from the middles of both */
    int64_t rows, columns;
    bool bilinear;      /* else the nearest pixel */
    const float *fill;  /* value outside the input, for each channel; NULL: 0 */
};

/* A contiguous float32 tensor [n, channels, rows, columns] on the CPU. */
int ah_warp(struct ah_tensor **out, const struct ah_tensor *image, const struct ah_warp *warp);
