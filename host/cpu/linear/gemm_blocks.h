/* Products of bfloat16 matrices by the processor's instruction for blocks of a matrix, bfmmla of FEAT_BF16 (a file for
 * each architecture): C = op(A) op(B) + bias on row-major arrays, as in cpu/linear/gemm.h.
 *
 * Bits: an element is the sum, in order of the depth, of one pair of products after another, each pair added before it
 * is added to the sum; both additions round to odd and flush denormal numbers to zero, as bfdot does on the same pairs.
 * The bias is added to the sum, and the result is rounded once, to nearest. They depend neither on the piece of C
 * that an element belongs to nor on the number of threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_gemm_blocks {
    int64_t m, n, k;
    const uint16_t *a, *b, *bias; /* bias: one number per column; NULL: none */
    int64_t a_row, a_step, b_column, b_step; /* from a row of op(A), a column of op(B) to the next; of the depth */
    void *c;
    int64_t ldc;
    bool wide; /* C is float32: the sums, which are not rounded */
};

/* Has the processor the instruction, and is it enabled (ah_bf16_pairs)? */
bool ah_gemm_blocks_found(void);
/* Bytes of scratch for a product of this depth. */
size_t ah_gemm_blocks_scratch(int64_t k);
/* Compute a product on the calling thread, where ah_gemm_blocks_found(). */
void ah_gemm_blocks_run(const struct ah_gemm_blocks *p, void *scratch);
