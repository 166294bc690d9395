/* Arguments of the loss kernels. Scores are outer x classes x inner, positions outer x inner; a label outside the
 * classes that is not `ignore` results in NaN (it was refused before). Reductions are those of ops/nn/loss.h. */
#pragma once

#include "cuda/kernels/lib/rows.h"

enum { AH_LOSS_THREADS = 256, AH_LOSS_TOTAL_THREADS = 1024 };

struct ah_labels {
    uint64_t label, weight; /* weight: in the type that is computed in; 0: none */
    int64_t count, classes, inner, ignore;
    double smoothing;
};

/* One loss for each position: to `out` in the type of x, or to `loss` in that which is computed in. */
struct ah_nll_args {
    struct ah_labels labels;
    uint64_t x, out, loss;
};

struct ah_nll_backward_args {
    struct ah_labels labels;
    uint64_t g, gx, total; /* total: of the weights, 0 unless the loss is a mean */
    int32_t each;          /* g has a number for each position */
};

/* Positions are rows of scores. */
struct ah_entropy_args {
    struct ah_labels labels;
    uint64_t x, log_sum, out, loss; /* log_sum: 0 for none */
};

struct ah_entropy_backward_args {
    struct ah_labels labels;
    uint64_t g, x, log_sum, gx, total; /* g: in the type that is computed in; gx may be x */
    int32_t each;
};

/* The sum or the mean of losses, and (unless it is 0) the total of the weights, in double. */
struct ah_loss_total_args {
    struct ah_labels labels;
    uint64_t loss, out, total;
    int32_t mean;
};
