/* Windows of images and volumes as the columns of matrices, for the ops im2col and col2im and for convolutions by
 * products. */
#pragma once

#include "base/numeric/dtype.h"
#include "cuda/driver/api/device.h"
#include "cuda/kernels/image/patches.h"

/* The depth of images. */
#define AH_PATCHES_FLAT {.in = 1, .out = 1, .kernel = 1, .dilation = 1, .stride = 1}

/* matrix = the windows of the images, items of any dtype; image = the sums of the matrix, of a floating one. All but
 * `narrow` and `volume` is filled in. */
int ah_cuda_take_patches(struct ah_device *device, const char *op_name, enum ah_dtype dtype,
                         struct ah_patches_args *args);
int ah_cuda_add_patches(struct ah_device *device, const char *op_name, enum ah_dtype dtype,
                        struct ah_patches_args *args);
