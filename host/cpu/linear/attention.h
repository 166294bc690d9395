/* Description of an attention: sequences of queries and keys, heads, the keys that a query sees. Strides count
 * elements. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/numeric/dtype.h"
#include "ops/nn/attention.h"

enum { AH_ATTENTION_KEYS = 64 }; /* of a block; its queries are side by side in vectors */

/* One sequence: the first of its queries and keys, and their numbers. */
struct ah_attention_span {
    int64_t number;         /* of the batch: the first stride of arrays and mask */
    int64_t query, queries, key, keys;
    int64_t room;           /* keys of which the first `keys` count */
    int64_t row;            /* the number of its first query among those of all spans */
    int64_t diagonal;       /* query i is aligned with key i + diagonal */
    int64_t words;          /* dropout words of the spans before */
};

/* A block of queries of one head. */
struct ah_attention_unit {
    const struct ah_attention_span *span;
    int64_t head, first; /* query */
};

/* Rows of a head's width, of items of the plan's dtype. */
struct ah_attention_rows {
    void *data;
    int64_t batch, token, head; /* strides */
    int64_t width;              /* items of a row that are the caller's; others, up to a whole vector, are zeros */
};

struct ah_attention {
    enum ah_dtype dtype;        /* of rows: that of the tensors, or float32 where it is computed in */
    int64_t heads, group;       /* of the query; number of these that share a head of key and value */
    int64_t width, value_width; /* of a head, whole vectors */
    double scale;
    int64_t left, right;        /* numbers of keys before and after its own that a query sees; -1: all */
    struct ah_attention_span *span;
    int64_t spans, rows, words; /* their number; queries and dropout words of all of them */
    const void *mask;           /* booleans (true: seen) or numbers to be added; or NULL */
    bool boolean;
    int64_t mask_batch, mask_head, mask_query, mask_key; /* strides */
    const uint64_t *keep;       /* a word for each unit and key: which queries' weights stay; or NULL */
    double keep_scale;
    struct ah_attention_rows query, key, value, out, grad, grad_query, grad_key, grad_value;
    void *lse;                  /* [heads, rows] */
};

/* The loops for rows of a dtype: the work of a unit forward, of a group of units backward, with `scratch_bytes` of a
 * thread's memory. No functions where rows are computed in another dtype. */
typedef void (*ah_attention_work)(const struct ah_attention *a, const struct ah_attention_unit *unit, void *scratch);
struct ah_attention_kind {
    ah_attention_work forward, backward;
    size_t (*scratch_bytes)(const struct ah_attention *a);
};
extern const struct ah_attention_kind ah_attention_kinds[AH_DTYPE_COUNT];

/* The next part of a scratch block, on a cache line; `block` NULL: count its bytes only. */
static inline void *ah_attention_part(void *block, size_t *at, size_t bytes)
{
    void *part = block ? (char *)block + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return part;
}
