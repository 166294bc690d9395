/* Attention on bfloat16 items, by the instructions for sums of products of pairs (cpu/loop/lanes.h): a factor is two
 * items. Neighbours of a row are one as they are; items of two rows are interleaved in scratch memory first. Sums,
 * scores and exponentials are float32; weights and gradients of scores are rounded to bfloat16 as factors. */
#define REAL float
#define SUFFIX(name) name##_f32
#define KIND(name) name##_bf16
#define ITEM uint16_t
#define FACTOR uint32_t

typedef ah_lanes_f32 ah_pairs_at __attribute__((aligned(2), may_alias));

static inline float real_bf16(uint16_t item)
{
    return ah_bf16_to_f32(item);
}

static inline uint16_t item_bf16(float value)
{
    return ah_f32_to_bf16(value);
}

static inline int64_t factors_of_bf16(int64_t items)
{
    return (items + 1) / 2;
}

static inline ah_pairs_at *factors_bf16(const uint32_t *at)
{
    return (ah_pairs_at *)at;
}

static inline ah_lanes_f32 scale_sum_bf16(ah_lanes_f32 sum, float scale)
{
    return sum * ah_spread_f32(scale);
}

/* For a processor's instructions: the factors of a row in a vector or, where not `whole`, in half of one, with zeros (a
 * vector of 8 items is whole); the product of a factor, spread over the lanes, and a vector of them, added to a sum;
 * rounded items; and three ways to make factors:
 * turn_items_bf16: to[pair][query] = from[query][pair]; queries up to a whole vector are zeros. The scale follows the
 * products. `width`: a multiple of 8.
 * factor_rows_bf16: room[i / 2][d] = the items d of rows i and i + 1, or 0 for a row beyond `count`. `width`: whole
 * vectors.
 * factor_scores_bf16: room[key / 2][query] = the rounded scores of two keys. */
#if defined(__aarch64__)
#include "cpu/linear/attention_pairs_aarch64.h"
#else
#include "cpu/linear/attention_pairs_x86_64.h"
#endif

/* Set the addresses of a scratch block; returns its size in bytes. */
static size_t scratch_layout_bf16(struct scratch_f32 *s, const struct ah_attention *a, void *block)
{
    const size_t block_floats = (size_t)AH_ATTENTION_KEYS * WIDE_f32 * sizeof(float);
    int64_t width = a->width > a->value_width ? a->width : a->value_width, room = 0;
    size_t rows = (size_t)width * WIDE_f32 * sizeof(float), at = 0;
    for (int64_t i = 0; i < a->spans && a->grad_key.data; i++)
        room = a->span[i].room > room ? a->span[i].room : room;
    *s = (struct scratch_f32){.key_step = a->width, .value_step = a->value_width};
    s->turned_query = ah_attention_part(block, &at, rows / 2);
    s->turned_grad = ah_attention_part(block, &at, rows / 2);
    s->sums = ah_attention_part(block, &at, rows);
    s->scores = ah_attention_part(block, &at, block_floats);
    s->steps = ah_attention_part(block, &at, block_floats);
    s->weight_items = ah_attention_part(block, &at, block_floats / 2);
    s->step_items = ah_attention_part(block, &at, block_floats / 2);
    s->room_weights = ah_attention_part(block, &at, block_floats / 2);
    s->room_key = ah_attention_part(block, &at, rows / 2);
    s->room_query = ah_attention_part(block, &at, rows / 2);
    s->room_grad = ah_attention_part(block, &at, rows / 2);
    s->key_sums = ah_attention_part(block, &at, (size_t)(room * a->width) * sizeof(float));
    s->value_sums = ah_attention_part(block, &at, (size_t)(room * a->value_width) * sizeof(float));
    s->weights = ah_attention_part(block, &at, block_floats);
    return at;
}

#include "cpu/linear/attention_tile.h"

#include "cpu/linear/attention_loops.h"

#undef REAL
#undef SUFFIX
#undef KIND
#undef ITEM
#undef FACTOR
