/* Arguments of the pooling kernels. A thread, or where windows are large a warp, owns an element of the result: of the
 * output, or backward of the input, which searches for the windows that contain it. */
#pragma once

#include <stdint.h>

enum { AH_POOL_THREADS = 256, AH_POOL_LARGE = 64 /* elements of a window that a warp shares */ };

struct ah_pool {
    int64_t n, c, h, w, oh, ow;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    int32_t last;     /* channels behind the pixels, in all tensors */
    int32_t narrow;   /* all counts fit in 30 bits */
    int32_t adaptive; /* windows share out the input; no kernel, stride, padding */
    int32_t warps;    /* a warp for each element */
};

/* Places are int32, or bytes: the tap's number within its window. */
struct ah_max_pool_args {
    struct ah_pool pool;
    uint64_t x, y, place; /* place: 0, none */
    uint64_t index;       /* 0, or the position of each maximum in its plane, int64 */
    int32_t bytes;
};

struct ah_max_pool_backward_args {
    struct ah_pool pool;
    uint64_t g, place, gx;
    int32_t bytes;
};

/* Backward x is the output's gradient and y that of the input. */
struct ah_mean_pool_args {
    struct ah_pool pool;
    uint64_t x, y;
    int64_t divisor; /* 0: the window's size, with or without the padding */
    int32_t count_padding;
};

struct ah_adaptive_max_args {
    struct ah_pool pool;
    uint64_t x, y, place;
};
