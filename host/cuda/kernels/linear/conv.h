/* Arguments of adding a convolution's bias. */
#pragma once

#include <stdint.h>

enum { AH_CONV_THREADS = 256 };

/* y += bias of its channel, in place. With `wide` a pack of 16 bytes is within a plane, or `last` within a pixel. */
struct ah_conv_bias_args {
    uint64_t y, bias;
    int64_t count, channels, pixels;
    int32_t last, wide;
};
