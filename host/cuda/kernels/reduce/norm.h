/* Arguments of layer norm and RMS norm (which subtracts no mean and has no bias): rows of `width`. Statistics are of
 * the compute type. */
#pragma once

#include "cuda/kernels/lib/rows.h"

enum { AH_NORM_CHUNK = 64, AH_NORM_COLUMNS = 32 };

/* The dtype of a tensor: x's, or fp16 or bf16 where x is float32. */
enum { AH_NORM_SAME, AH_NORM_F16, AH_NORM_BF16 };

struct ah_norm_rows_args {
    uint64_t x, weight, bias, y, mean, inverse; /* weight, bias: 0 for none; mean: 0 for RMS norm */
    int64_t rows, width;
    double eps;
    int32_t wide, y_kind;
};

/* Of x + other, which goes to `sum`. */
struct ah_add_norm_args {
    struct ah_norm_rows_args norm;
    uint64_t other, sum;
    int32_t kind;
};

struct ah_norm_backward_args {
    uint64_t g, x, weight, mean, inverse, gx;
    uint64_t more, also; /* 0, or a summand of gx; 0, or a second output of gx, as fp16 or bf16 */
    int64_t rows, width;
    int32_t wide, g_kind, also_kind;
};

/* The gradients of weight and bias (0: none): partial sums of chunks of rows, then their sums. */
struct ah_norm_affine_args {
    uint64_t g, x, mean, inverse;
    uint64_t weight_parts, bias_parts; /* [chunks, width] */
    int64_t rows, width, chunks;
    int32_t g_kind;
};
struct ah_column_total_args {
    uint64_t parts, total;
    int64_t width, chunks;
};
