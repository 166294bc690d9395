/* Reductions over any set of dims.
 *
 * Sums run in double (floating inputs) or int64 (the rest), in chunks whose borders depend on the shape alone: the
 * result is the same for any thread count and closer to the truth than float32 sums. Lua thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/numeric/dtype.h"

struct ah_tensor;

enum ah_fold {
    AH_FOLD_SUM,
    AH_FOLD_PROD,
    AH_FOLD_MAX, /* NaN wins */
    AH_FOLD_MIN,
    AH_FOLD_COUNT,   /* of values other than 0 */
    AH_FOLD_NANSUM,  /* without NaN */
    AH_FOLD_ABS,     /* sum of |x| */
    AH_FOLD_SQUARES, /* sum of x^2 */
    AH_FOLD_POWERS,  /* sum of |x|^p */
    AH_FOLD_ABS_MAX,
    AH_FOLD_ABS_MIN,
};

/* The fold of a p-norm, and the norm of a folded value. */
enum ah_fold ah_norm_fold(double p);
double ah_norm_of(double folded, double p);

/* The inner loops of a fold of one input type: `row` folds n inputs into one accumulator (double or int64), `column`
 * folds each of `rows` rows of n inputs, `stride` apart, into n accumulators. `p` is that of AH_FOLD_POWERS. */
struct ah_fold_loops {
    void (*row)(void *acc, const void *input, int64_t n, double p);
    void (*column)(void *acc, const void *input, int64_t n, int64_t rows, int64_t stride, double p);
};
const struct ah_fold_loops *ah_fold_loops(enum ah_dtype dtype, enum ah_fold fold);

struct ah_reduction {
    void *data;    /* one value per output in row-major order: double or int64 */
    bool integral; /* int64 */
    int64_t count;  /* outputs */
    int64_t folded; /* inputs per output */
};

/* Reduce the dims in `mask` (bit d for dim d). Free the result with ah_reduction_free. */
int ah_reduce(struct ah_reduction *out, struct ah_tensor *input, uint32_t mask, enum ah_fold fold, double p);
void ah_reduction_free(struct ah_reduction *reduction);

/* Convert the results into a row-major tensor with as many elements. */
void ah_reduction_store(const struct ah_reduction *reduction, struct ah_tensor *out);

/* A row-major matrix of `dtype` whose rows are the parts of `input` to be reduced, in the order of the outputs:
 * *rows x *columns. Costs nothing when the reduced dims are the last ones of a row-major input. */
int ah_reduce_rows(struct ah_tensor **out, struct ah_tensor *input, uint32_t mask, enum ah_dtype dtype, int64_t *rows,
                   int64_t *columns);
