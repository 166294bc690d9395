/* The order of what attention keeps: shared by shape rules and kernels. */
#ifndef AH_OPS_ATTENTION_H
#define AH_OPS_ATTENTION_H

#include "ops/dispatch/op.h"

/* Queries go in blocks. A block of one head has one word for each key: bit i says whether the weight of the block's
 * query i stays under dropout. The words of a block lie together, then those of the sequence's other blocks, of its
 * other heads, of other sequences. */
enum { AH_ATTENTION_QUERIES = 64 };

static inline int64_t ah_attention_blocks(int64_t queries)
{
    return (queries + AH_ATTENTION_QUERIES - 1) / AH_ATTENTION_QUERIES;
}

#endif
