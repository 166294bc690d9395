/* A random rectangle of an image filled with one value for each channel: RandomErasing while a batch is gathered.
 *
 * It draws the same numbers from the sample's stream as the transform that is called on an image: the results are equal
 * to the bit. Any thread may apply it; it allocates nothing. https://arxiv.org/abs/1708.04896 */
#pragma once

#include <stdint.h>

#include "data/stream.h"

enum { AH_ERASE_CHANNELS = 4 };

struct ah_erase {
    double p;                       /* probability */
    double scale[2], log_ratio[2];  /* least and largest: part of the area; logarithm of height / width */
    float value[AH_ERASE_CHANNELS]; /* written to the erased part, by channel */
    int64_t channels, size[2];      /* of the image: rows and columns */
};

/* The image is channels after channels of float32, contiguous. */
void ah_erase_apply(const struct ah_erase *erase, float *image, struct ah_stream *stream);
