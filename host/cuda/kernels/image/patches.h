/* Arguments of the kernels that read windows of images, or of volumes, as the columns of matrices, and that add them up
 * again. A column is a pixel of the output; its rows are the channels, and of each the places of the window. */
#pragma once

#include <stdint.h>

enum { AH_PATCHES_THREADS = 256 };

/* The depth of a volume; of an image sizes, kernel, dilation and stride are 1. */
struct ah_patches_depth {
    int64_t in, out, kernel, dilation, padding, stride;
};

/* `matrix` begins at an image's first row: `image_step` elements to the next image, `row_step` to the next row. */
struct ah_patches_args {
    uint64_t image, matrix;
    int64_t n, c, h, w, oh, ow;
    int64_t kernel[2], dilation[2], padding[2], stride[2];
    struct ah_patches_depth depth;
    int64_t image_step, row_step;
    int64_t plane_step; /* elements from one image to the next */
    int32_t narrow;     /* all counts fit in 30 bits */
    int32_t volume;     /* is there a depth other than 1? */
};
