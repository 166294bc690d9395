/* Windows of images as the columns of matrices, for the ops im2col and col2im and for convolutions by products. */
#pragma once

#include "base/numeric/dtype.h"
#include "cuda/driver/api/device.h"
#include "cuda/kernels/image/patches.h"

/* matrix = the windows of the images, items of any dtype; image = the sums of the matrix, of a floating one. All but
 * `narrow` is filled in. */
int ah_cuda_take_patches(struct ah_device *device, const char *op_name, enum ah_dtype dtype,
                         struct ah_patches_args *args);
int ah_cuda_add_patches(struct ah_device *device, const char *op_name, enum ah_dtype dtype,
                        struct ah_patches_args *args);
