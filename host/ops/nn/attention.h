/* The layout of attention's saved dropout mask, shared by shape rules and kernels. */
#ifndef AH_OPS_ATTENTION_H
#define AH_OPS_ATTENTION_H

#include <stdint.h>

struct ah_tensor;

/* Queries are processed in blocks. A block of one head has one word per key: bit i is set if dropout keeps the weight
 * of the block's query i. The words of a block are contiguous, followed by those of the sequence's other blocks, of its
 * other heads, of other sequences. */
enum { AH_ATTENTION_QUERIES = 64 };

static inline int64_t ah_attention_blocks(int64_t queries)
{
    return (queries + AH_ATTENTION_QUERIES - 1) / AH_ATTENTION_QUERIES;
}

/* Check that `at` is int64 (n,) on the CPU, ascending and below `rows`: the rows in a padded batch of n packed rows. */
int ah_check_padded_rows(const char *op, const struct ah_tensor *at, int64_t n, int64_t rows);

#endif
