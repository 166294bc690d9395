/* The layout of attention's saved dropout mask, shared by shape rules and kernels; attention by heads that are too wide
 * for a device's kernels. */
#pragma once

#include <stdint.h>

struct ah_call;
struct ah_device;
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

/* The number of queries whose scores are in memory at a time, of `queries`; `each`: bytes for one. All, unless a device
 * reports its free memory, of which they use at most a quarter, and at most 1 GiB. */
int64_t ah_attention_rows(struct ah_device *device, int64_t each, int64_t queries);

/* Kernels of attention and attention_backward for any width, made of other ops, with a chunk of the scores in memory.
 * The logarithms of sums are 0: the backward needs none. AH_ENOTIMPL for dropout, sequences behind each other and
 * windows other than a causal mask. */
int ah_attention_wide(struct ah_call *call);
int ah_attention_wide_backward(struct ah_call *call);
