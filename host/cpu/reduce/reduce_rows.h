/* Reductions of rows that take more than one pass over their inputs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Rows of `columns` items, of the type in the body's name. Bodies are for ah_parallel_for. */
struct ah_by_row {
    const void *input;
    void *out;
    int64_t *index;
    int64_t columns;
    double number; /* variance: the correction */
    bool flag;     /* variance: its root */
};

#define AH_ROWS_BODY(name) void ah_rows_##name(void *context, int64_t begin, int64_t end)
AH_ROWS_BODY(variance_f32);
AH_ROWS_BODY(variance_f64);
AH_ROWS_BODY(logsumexp_f32);
AH_ROWS_BODY(logsumexp_f64);
AH_ROWS_BODY(others_f32); /* the product of all other items of the row */
AH_ROWS_BODY(others_f64);
AH_ROWS_BODY(largest_f32); /* `index` of the extreme, and, unless `out` is NULL, its value */
AH_ROWS_BODY(largest_f64);
AH_ROWS_BODY(largest_i64);
AH_ROWS_BODY(smallest_f32);
AH_ROWS_BODY(smallest_f64);
AH_ROWS_BODY(smallest_i64);
