/* Products of bfloat16 rows with a float32 matrix that is rounded to bfloat16 where it is packed for the processor's
 * instructions (a file for each architecture): C = A op(B) + bias, with C and the bias in bfloat16. A weight that is
 * kept in float32 needs no copy in bfloat16 (ops/dispatch/autocast.h).
 *
 * Bits: an element is the sum, in order of the depth, of one pair of products after another, of which the second is
 * added first, each rounded to nearest; denormal numbers are zeros. The bias is added to the sum, and the result is
 * rounded once. They depend neither on the piece of C that an element belongs to nor on the number of threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_gemm_rounded {
    int64_t m, n, k;
    const uint16_t *a, *bias; /* bias: one number per column; NULL: none */
    const float *b;
    uint16_t *c;
    int64_t lda, b_column, b_step, ldc; /* of B: from a column to the next, and of the depth; one of them is 1 */
};

/* Are there such products, and are they faster than those of a rounded copy? AVX512-BF16 of AMD. */
bool ah_gemm_rounded_found(void);
/* Bytes of scratch for a product; its arrays are not read. */
size_t ah_gemm_rounded_scratch(const struct ah_gemm_rounded *p);
/* Compute a product on the calling thread, where ah_gemm_rounded_found(). */
void ah_gemm_rounded_run(const struct ah_gemm_rounded *p, void *scratch);
