/* Softmax of row-major arrays, (outer, n, inner), for both real types. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cpu/loop/dense.h"

/* Rows of `length` scores under a mask: one of `ndim` dims of the scores' sizes, booleans or numbers to be added. */
struct ah_masked {
    int64_t rows, length, queries;
    bool causal, boolean;
    int ndim;
    const int64_t *size, *stride; /* of the scores; of the mask, stretched to them */
};

#define AH_SOFTMAX_LOOPS(suffix, real)                                                                              \
    void ah_softmax_all_##suffix(const real *x, real *y, int64_t outer, int64_t n, int64_t inner, bool take_log);   \
    void ah_softmax_all_backward_##suffix(const real *g, const real *y, real *gx, int64_t outer, int64_t n,         \
                                          int64_t inner, bool take_log);                                            \
    void ah_masked_rows_##suffix(const struct ah_masked *m, const real *x, real *y, const void *mask);
AH_SOFTMAX_LOOPS(f32, float)
AH_SOFTMAX_LOOPS(f64, double)

/* Rows that are computed in float32 and converted a block of ah_softmax_block(n) rows at a time: `out` of `x` or,
 * backward, of the gradient `x` and the result `y`. `room` has AH_SOFTMAX_ROOM blocks for each thread. */
enum { AH_SOFTMAX_ROOM = 3 };
struct ah_softmax_items {
    struct ah_items x, y, out;
    float *room;
};
bool ah_softmax_by_rows(int64_t n, int64_t inner); /* can they be; short rows are computed several at a time */
int64_t ah_softmax_block(int64_t n);
void ah_softmax_rows(const struct ah_softmax_items *of, int64_t rows, int64_t n, bool take_log);
void ah_softmax_rows_backward(const struct ah_softmax_items *of, int64_t rows, int64_t n, bool take_log);
