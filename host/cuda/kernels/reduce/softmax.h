/* Arguments of the softmax kernels: rows of `length` elements, or, with inner > 1, columns of outer x length x
 * inner. */
#pragma once

#include "cuda/kernels/lib/rows.h"

enum { AH_SOFTMAX_DIMS = 8 };

struct ah_softmax_args {
    uint64_t x, y;
    int64_t rows, length, inner;
    int32_t log, wide;
};

struct ah_softmax_backward_args {
    uint64_t g, y, gx;
    int64_t rows, length, inner;
    int32_t log, wide;
};

/* Scores of attention: rows are counted over `size`, whose last dim is `length` and the one before it the queries. */
struct ah_masked_softmax_args {
    uint64_t x, y, mask; /* 0: none; bool keeps, else added */
    int64_t rows, length, queries, size[AH_SOFTMAX_DIMS], stride[AH_SOFTMAX_DIMS]; /* of the mask */
    int32_t ndim, causal, boolean, wide;
};
