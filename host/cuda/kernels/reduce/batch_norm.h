/* Arguments of batch norm's kernels. A batch is n x c x pixels, or, `last`, n x pixels rows of c channels. Each channel
 * is cut into splits of `length` values, whose statistics are combined in their order. */
#pragma once

#include <stdint.h>

enum { AH_BATCH_THREADS = 256, AH_BATCH_EACH = 16, AH_BATCH_COLUMNS = 32,
       AH_BATCH_LANES = AH_BATCH_THREADS / AH_BATCH_COLUMNS };

struct ah_batch {
    int64_t n, c, pixels, length, splits;
    int32_t last;
};

/* Per channel and split, [splits, c]: mean and squares about it; or the sums of g and g (x - mean). */
struct ah_batch_parts_args {
    struct ah_batch batch;
    uint64_t x, g, mean, first, second; /* g, mean: of the backward pass */
};

/* Per channel: statistics, the new running ones, and the factors of the pass over the elements. */
struct ah_batch_stats_args {
    struct ah_batch batch;
    uint64_t first, second; /* 0: the running statistics are used */
    uint64_t mean, inverse, running_mean, running_var, weight, bias; /* 0: none */
    uint64_t scale, shift;
    int64_t mean_stride, var_stride; /* of the running ones */
    double eps, momentum;
};

struct ah_batch_gradient_args {
    struct ah_batch batch;
    uint64_t first, second, mean, inverse, weight, grad_weight, grad_bias;
    uint64_t of_g, of_x, constant; /* factors */
    int32_t training;
};

/* y = x scale + shift, or gx = g of_g + (x of_x + constant). */
struct ah_batch_apply_args {
    struct ah_batch batch;
    uint64_t x, g, y, scale, shift, of_g;
    int32_t wide; /* packs are in one channel or, `last`, in one row */
};
