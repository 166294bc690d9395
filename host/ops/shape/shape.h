/* Helpers of the shape family for composites of other families. */
#pragma once

#include "ops/dispatch/op.h"

/* x in a wanted shape (one size may be -1): a view where x's strides allow it, else a copy.
 * Recorded like any op. Errors carry the caller's name `op`. */
int ah_reshaped(const char *op, struct ah_tensor **out, struct ah_tensor *x, const int64_t *wanted,
                int ndim);

/* Hand out `size`, `stride`, `offset` of arg[0]'s storage as the call's result. The caller sees to the bounds. */
int ah_give_view(struct ah_call *c, const int64_t *size, const int64_t *stride, int ndim, int64_t offset);

/* Is `at` int64 (n,) on the CPU with numbers that rise and stay below `rows`: the rows of a padded batch that n packed
 * rows are? */
int ah_check_padded_rows(const char *op, const struct ah_tensor *at, int64_t n, int64_t rows);
