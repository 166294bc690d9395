/* Arguments of the kernels that read windows of images as the columns of matrices, and add them up again. A column is a
 * pixel of the output; its rows are the channels, and of each the places of the window. */
#pragma once

#include <stdint.h>

enum { AH_PATCHES_THREADS = 256 };

/* `matrix` begins at an image's first row: `image_step` elements to the next image, `row_step` to the next row. */
struct ah_patches_args {
    uint64_t image, matrix;
    int64_t n, c, h, w, oh, ow;
    int64_t kernel[2], dilation[2], padding[2], stride[2];
    int64_t image_step, row_step;
    int64_t plane_step; /* elements from one image to the next */
    int32_t narrow;     /* all counts fit in 30 bits */
};
