/* Arguments of padding with values from the edges, and of reading positions of a strided view. */
#pragma once

#include <stdint.h>

enum { AH_PAD_THREADS = 256, AH_PAD_DIMS = 8 };
enum ah_pad_mode { AH_PAD_CIRCULAR, AH_PAD_REFLECT, AH_PAD_REPLICATE };

/* Dims that are not padded are merged. Backward `from` is the gradient of the padded tensor. */
struct ah_pad_args {
    uint64_t to, from;
    int64_t count; /* elements of `to` */
    int64_t size[AH_PAD_DIMS], padded[AH_PAD_DIMS], before[AH_PAD_DIMS];
    int32_t ndim, mode;
};

/* The place, in row-major order, of each element of a view of the dims `size`: offset `start` and strides, among
 * elements of strides `in_stride`. Dims of the latter by falling strides: `in_place` is the size of one step there. */
struct ah_positions_args {
    uint64_t to;
    int64_t count, start, total;
    int64_t size[AH_PAD_DIMS], stride[AH_PAD_DIMS];
    int64_t in_size[AH_PAD_DIMS], in_stride[AH_PAD_DIMS], in_place[AH_PAD_DIMS];
    int32_t ndim, in_ndim;
};
