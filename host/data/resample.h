/* Images of another size: every output pixel is a weighted sum of neighbouring ones, rows and columns apart.
 *
 * The weights are those of PyTorch's interpolate (align_corners false), for box and hamming those of Pillow. Bytes are
 * summed in whole numbers, with 16-bit weights (box and hamming: 22 bits, as Pillow does), and rounded after the
 * columns and after the rows. Any thread may call. */
#pragma once

#include "tensor/tensor.h"

enum ah_resample_mode {
    AH_RESAMPLE_NEAREST,
    AH_RESAMPLE_NEAREST_EXACT,
    AH_RESAMPLE_BILINEAR,
    AH_RESAMPLE_BICUBIC,
    AH_RESAMPLE_LANCZOS, /* this and the following with `antialias` alone */
    AH_RESAMPLE_BOX,
    AH_RESAMPLE_HAMMING,
};

/* A contiguous uint8, float32 or float64 tensor [..., rows, columns] on the CPU with as many output rows and columns.
 * `antialias` widens the sum where the image shrinks. AH_EINVAL when there are no pixels to sum. */
int ah_resample(struct ah_tensor **out, const struct ah_tensor *image, int64_t rows, int64_t columns,
                enum ah_resample_mode mode, bool antialias);
