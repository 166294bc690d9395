/* Arguments of layer norm and RMS norm (which takes no mean off and has no bias): rows of `width`. Statistics are of
 * the type that is computed in. */
#ifndef AH_CUDA_KERNELS_NORM_H
#define AH_CUDA_KERNELS_NORM_H

#include "cuda/kernels/rows.h"

enum { AH_NORM_CHUNK = 64, AH_NORM_COLUMNS = 32 };

struct ah_norm_rows_args {
    uint64_t x, weight, bias, y, mean, inverse; /* weight, bias: 0 for none; mean: 0 for RMS norm */
    int64_t rows, width;
    double eps;
    int32_t wide;
};

struct ah_norm_backward_args {
    uint64_t g, x, weight, mean, inverse, gx;
    int64_t rows, width;
    int32_t wide;
};

/* The gradients of weight and bias (0: none): partial sums of chunks of rows, then their sums. */
struct ah_norm_affine_args {
    uint64_t g, x, mean, inverse;
    uint64_t weight_parts, bias_parts; /* [chunks, width] */
    int64_t rows, width, chunks;
};
struct ah_column_total_args {
    uint64_t parts, total;
    int64_t width, chunks;
};

#endif
