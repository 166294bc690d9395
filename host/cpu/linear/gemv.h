/* Products of one or few vectors with the rows of a matrix, y = W x + bias: each row of W is read once, in order, at
 * the rate of memory. Sums are in float32, in an order that depends on the length of a row alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { AH_GEMV_MOST = 4 }; /* vectors of a call */

/* `m` vectors x, `ldx` apart, times `n` rows of W, `ldw` apart, of `k` numbers each; row i of y, `ldy` apart, is of
 * vector i. `bias` has n numbers or is NULL. */
struct ah_gemv {
    int64_t m, n, k;
    const void *x, *w, *bias;
    void *y;
    int64_t ldx, ldw, ldy;
};

/* Is a product in float32 or bfloat16 faster here than by the libraries? */
bool ah_gemv_pays(int64_t m, int64_t n, int64_t k);

/* Compute a product in float32. */
void ah_gemv_f32(const struct ah_gemv *v);
/* Compute a product of bfloat16 arrays (bits), rounded once. */
void ah_gemv_bf16(const struct ah_gemv *v);
