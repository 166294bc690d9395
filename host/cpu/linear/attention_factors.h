/* Attention whose items are the numbers that are computed in (cpu/loop/for_reals.h): a factor of a product is an item
 * in its place in memory. */
#define KIND(name) SUFFIX(name)
#define ITEM REAL
#define FACTOR REAL

static inline REAL SUFFIX(real)(REAL item)
{
    return item;
}

static inline REAL SUFFIX(item)(REAL value)
{
    return value;
}

static inline int64_t SUFFIX(factors_of)(int64_t items)
{
    return items;
}

static inline SUFFIX(ah_lanes_at) *SUFFIX(factors)(const REAL *at)
{
    return (SUFFIX(ah_lanes_at) *)at;
}

static inline SUFFIX(ah_lanes) SUFFIX(row_factors)(const REAL *at, bool whole)
{
    return *SUFFIX(lanes)(at);
}

static inline SUFFIX(ah_lanes) SUFFIX(spread_factor)(const char *at)
{
    return SUFFIX(ah_spread)(*(const REAL *)(const void *)at);
}

static inline SUFFIX(ah_lanes) SUFFIX(add_product)(SUFFIX(ah_lanes) a, SUFFIX(ah_lanes) b, SUFFIX(ah_lanes) sum)
{
    return SUFFIX(ah_fma)(a, b, sum);
}

/* The scale of scores is in their transposed queries. */
static inline SUFFIX(ah_lanes) SUFFIX(scale_sum)(SUFFIX(ah_lanes) sum, REAL scale)
{
    return sum;
}

static inline void SUFFIX(store_items)(REAL *to, SUFFIX(ah_lanes) x)
{
    *SUFFIX(lanes)(to) = x;
}

static void SUFFIX(turn_items)(REAL *to, const REAL *from, int64_t step, int64_t count, int64_t width, REAL scale)
{
    SUFFIX(turn)(to, from, step, count, width, scale);
}

static const REAL *SUFFIX(factor_rows)(REAL *room, const REAL *rows, int64_t step, int64_t count, int64_t width,
                                       int64_t *row)
{
    *row = step;
    return rows;
}

static const REAL *SUFFIX(factor_scores)(REAL *room, const REAL *scores, int64_t keys, int64_t lanes)
{
    return scores;
}

/* Set the addresses of a scratch block; returns its size in bytes. */
static size_t SUFFIX(scratch_layout)(struct SUFFIX(scratch) *s, const struct ah_attention *a, void *block)
{
    size_t rows = (size_t)(a->width > a->value_width ? a->width : a->value_width) * SUFFIX(WIDE) * sizeof(REAL);
    size_t scores = (size_t)AH_ATTENTION_KEYS * SUFFIX(WIDE) * sizeof(REAL), at = 0;
    *s = (struct SUFFIX(scratch)){0};
    s->turned_query = ah_attention_part(block, &at, rows);
    s->turned_grad = ah_attention_part(block, &at, rows);
    s->sums = ah_attention_part(block, &at, rows);
    s->scores = ah_attention_part(block, &at, scores);
    s->weight_items = s->weights = ah_attention_part(block, &at, scores);
    s->step_items = s->steps = ah_attention_part(block, &at, scores);
    return at;
}

#include "cpu/linear/attention_tile.h"

#include "cpu/linear/attention_loops.h"

#undef KIND
#undef ITEM
#undef FACTOR
