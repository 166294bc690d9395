/* Scores of blocks of attention for one real type (cpu/loop/for_reals.h): up to AH_ATTENTION_QUERIES queries, which are
 * the lanes of vectors, against one block of keys. Scores are stored as [key][query]. */

enum {
    SUFFIX(WIDE) = AH_ATTENTION_QUERIES,
    SUFFIX(LANE) = AH_LANES_BYTES / sizeof(REAL),
    SUFFIX(FOLD) = AH_LANES_BYTES / sizeof(REAL) < 4 ? AH_LANES_BYTES / sizeof(REAL) : 4,
};

/* A thread's scratch memory. Transposed operands are stored as [factor][query]; `room_*` has factors made of rows of
 * memory, for kinds that have no factors there; `weight_items` and `step_items` are rows of a kind's items. */
struct SUFFIX(scratch) {
    void *turned_query, *turned_grad, *weight_items, *step_items, *room_weights, *room_key, *room_query, *room_grad;
    REAL *sums, *scores, *weights, *steps;
    REAL *key_sums, *value_sums; /* the gradients of a head's keys and values, at `key_step` and `value_step` */
    int64_t key_step, value_step;
    REAL largest[AH_ATTENTION_QUERIES], total[AH_ATTENTION_QUERIES], factor[AH_ATTENTION_QUERIES];
};

/* The scale of products as scores, which are logarithms to base 2: their powers cost the fewest instructions. */
static inline REAL SUFFIX(score_scale)(const struct ah_attention *a)
{
    return (REAL)(a->scale * M_LOG2E);
}

static inline SUFFIX(ah_lanes_at) *SUFFIX(lanes)(const REAL *at)
{
    return (SUFFIX(ah_lanes_at) *)at;
}

/* to[item][query] = scale * from[query][item]; the queries up to a whole vector are zeros. */
static void SUFFIX(turn)(REAL *to, const REAL *from, int64_t step, int64_t count, int64_t width, REAL scale)
{
    int64_t lanes = (count + SUFFIX(LANE) - 1) / SUFFIX(LANE) * SUFFIX(LANE), whole = width / 4 * 4, i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int64_t d = 0; d < whole; d += 4)
            SUFFIX(ah_turn_4)(to + d * SUFFIX(WIDE) + i, SUFFIX(WIDE), from + i * step + d, step, scale);
        for (int64_t d = whole; d < width; d++)
            for (int64_t k = i; k < i + 4; k++)
                to[d * SUFFIX(WIDE) + k] = from[k * step + d] * scale;
    }
    for (; i < count; i++)
        for (int64_t d = 0; d < width; d++)
            to[d * SUFFIX(WIDE) + i] = from[i * step + d] * scale;
    for (int64_t d = 0; d < width && count < lanes; d++)
        memset(to + d * SUFFIX(WIDE) + count, 0, (size_t)(lanes - count) * sizeof *to);
}

/* The lanes of a, then of b, by place; the places are constant. */
static inline __attribute__((always_inline)) SUFFIX(ah_lanes)
SUFFIX(shuffled)(SUFFIX(ah_lanes) a, SUFFIX(ah_lanes) b, SUFFIX(ah_lane_ints) places)
{
#if defined(__clang__)
    SUFFIX(ah_lanes) shuffled;
    for (int i = 0; i < SUFFIX(LANE); i++)
        shuffled[i] = places[i] < SUFFIX(LANE) ? a[places[i]] : b[places[i] - SUFFIX(LANE)];
    return shuffled;
#else
    return __builtin_shuffle(a, b, places);
#endif
}

/* The lanes of x, those from `by` on first. */
static inline __attribute__((always_inline)) SUFFIX(ah_lanes) SUFFIX(rotated)(SUFFIX(ah_lanes) x, int by)
{
    SUFFIX(ah_lane_ints) places;
#pragma GCC unroll 16
    for (int i = 0; i < SUFFIX(LANE); i++)
        places[i] = (i + by) % SUFFIX(LANE);
    return SUFFIX(shuffled)(x, x, places);
}

/* The largest lane, and their sum. */
static inline REAL SUFFIX(largest_lane)(SUFFIX(ah_lanes) x)
{
#pragma GCC unroll 4
    for (int half = SUFFIX(LANE) / 2; half; half /= 2)
        x = SUFFIX(ah_larger)(SUFFIX(rotated)(x, half), x);
    return x[0];
}

static inline REAL SUFFIX(sum_lanes)(SUFFIX(ah_lanes) x)
{
#pragma GCC unroll 4
    for (int half = SUFFIX(LANE) / 2; half; half /= 2)
        x += SUFFIX(rotated)(x, half);
    return x[0];
}

/* The halves of two vectors, added: sums of a and b in turns. */
static inline __attribute__((always_inline)) SUFFIX(ah_lanes) SUFFIX(fold)(SUFFIX(ah_lanes) a, SUFFIX(ah_lanes) b)
{
    SUFFIX(ah_lane_ints) lower, upper;
#pragma GCC unroll 16
    for (int i = 0; i < SUFFIX(LANE); i++) {
        lower[i] = i / 2 + i % 2 * SUFFIX(LANE);
        upper[i] = lower[i] + SUFFIX(LANE) / 2;
    }
    return SUFFIX(shuffled)(a, b, lower) + SUFFIX(shuffled)(a, b, upper);
}

/* Fold 1, 2 or 4 vectors into one. LANE vectors that are folded in turns become their sums in order: FOLD of them, with
 * numbers that differ by LANE / FOLD, then the results. */
static inline __attribute__((always_inline)) SUFFIX(ah_lanes) SUFFIX(folded)(const SUFFIX(ah_lanes) *x, const int count)
{
    if (count == 1)
        return x[0];
    return count == 2 ? SUFFIX(fold)(x[0], x[1]) : SUFFIX(fold)(SUFFIX(fold)(x[0], x[2]), SUFFIX(fold)(x[1], x[3]));
}

/* The keys that some query of the unit sees: [*begin, *end). */
static void SUFFIX(visible)(const struct ah_attention *a, const struct ah_attention_unit *unit, int64_t count,
                            int64_t *begin, int64_t *end)
{
    const struct ah_attention_span *span = unit->span;
    int64_t first = unit->first + span->diagonal - a->left, last = unit->first + count + span->diagonal + a->right;
    *begin = a->left < 0 || first < 0 ? 0 : first < span->keys ? first : span->keys;
    *end = a->right < 0 || last > span->keys ? span->keys : last > *begin ? last : *begin;
}

/* Return the number of keys of a block, from its first one on, that some of the unit's queries before `end` see. */
static int64_t SUFFIX(keys_before)(const struct ah_attention *a, const struct ah_attention_unit *unit, int64_t end,
                                   int64_t key, int64_t keys)
{
    int64_t seen = unit->first + end + unit->span->diagonal + a->right - key;
    return a->right < 0 || seen > keys ? keys : seen > 0 ? seen : 0;
}

/* Return the number of queries whose products with a block of keys are computed together: all of `lanes`, or a vector
 * of them where the first ones do not see all keys. */
static int64_t SUFFIX(queries_together)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                                        int64_t lanes, int64_t key, int64_t keys)
{
    return SUFFIX(keys_before)(a, unit, 1, key, keys) < keys ? SUFFIX(LANE) : lanes;
}

/* Return the number of the unit's first queries, whole vectors of its `lanes`, that see neither this key nor later
 * ones. */
static int64_t SUFFIX(queries_before)(const struct ah_attention *a, const struct ah_attention_unit *unit, int64_t lanes,
                                      int64_t key)
{
    int64_t before = key - unit->span->diagonal - unit->first - a->right;
    if (a->right < 0 || before < SUFFIX(LANE))
        return 0;
    return (before < lanes ? before : lanes) / SUFFIX(LANE) * SUFFIX(LANE);
}

/* Return the number of keys of a block whose products with the unit's queries are computed together: all, or a vector's
 * lanes of them where the first queries do not see the last ones. */
static int64_t SUFFIX(keys_together)(const struct ah_attention *a, const struct ah_attention_unit *unit, int64_t lanes,
                                     int64_t key, int64_t keys)
{
    return SUFFIX(queries_before)(a, unit, lanes, key + keys - 1) > 0 ? SUFFIX(LANE) : keys;
}

/* -inf for the queries that do not see a key, by place. */
static void SUFFIX(mask_places)(const struct ah_attention *a, const struct ah_attention_unit *unit, REAL *scores,
                                int64_t key, int64_t keys, int64_t lanes)
{
    for (int64_t j = 0; j < keys; j++, scores += SUFFIX(WIDE)) {
        int64_t own = key + j - unit->span->diagonal - unit->first; /* the query aligned with this key */
        int64_t from = a->right < 0 ? 0 : own - a->right, to = a->left < 0 ? lanes : own + a->left + 1;
        for (int64_t i = 0; i < from && i < lanes; i++)
            scores[i] = (REAL)-INFINITY;
        for (int64_t i = to < 0 ? 0 : to; i < lanes; i++)
            scores[i] = (REAL)-INFINITY;
    }
}

/* Ones where the bit of a lane is set in `word`, whose first bit is that of the first lane. */
static inline SUFFIX(ah_lane_ints) SUFFIX(chosen)(uint64_t word)
{
    SUFFIX(ah_lane_ints) bit;
    for (int i = 0; i < SUFFIX(LANE); i++)
        bit[i] = 1 << i;
    return (((int32_t)(word & 0xffff) - (SUFFIX(ah_lane_ints)){0}) & bit) != 0;
}

/* Set scores to -inf where a boolean mask is false. */
static void SUFFIX(mask_seen)(const struct ah_attention *a, const uint8_t *seen, REAL *scores, int64_t keys,
                              int64_t count, int64_t lanes)
{
    uint64_t word[AH_ATTENTION_KEYS] = {0};
    for (int64_t j = 0; j < keys && a->mask_query == 0; j++)
        word[j] = seen[j * a->mask_key] ? ~UINT64_C(0) : 0;
    for (int64_t i = 0; i < count && a->mask_query != 0; i++) {
        const uint8_t *row = seen + i * a->mask_query;
        if (a->mask_key == 1)
            for (int64_t j = 0; j < keys; j++)
                word[j] |= (uint64_t)row[j] << i;
        else
            for (int64_t j = 0; j < keys; j++)
                word[j] |= (uint64_t)row[j * a->mask_key] << i;
    }
    SUFFIX(ah_lanes) nothing = SUFFIX(ah_spread)((REAL)-INFINITY);
    for (int64_t j = 0; j < keys; j++) {
        for (int64_t i = 0; i < lanes; i += SUFFIX(LANE)) {
            SUFFIX(ah_lanes_at) *at = SUFFIX(lanes)(scores + j * SUFFIX(WIDE) + i);
            *at = SUFFIX(ah_choose)(SUFFIX(chosen)(word[j] >> i), *at, nothing);
        }
    }
}

/* Add a mask of numbers, turned in `room`, in the unit of scores. Finite ones stay finite: a query all of whose keys
 * have the dtype's least number sees them all alike. */
static void SUFFIX(mask_added)(const struct ah_attention *a, const REAL *added, REAL *scores, REAL *room, int64_t keys,
                               int64_t count, int64_t lanes)
{
    if (a->mask_key == 1 && a->mask_query != 0) {
        SUFFIX(turn)(room, added, a->mask_query, count, keys, 1);
    } else {
        for (int64_t j = 0; j < keys; j++)
            for (int64_t i = 0; i < lanes; i++)
                room[j * SUFFIX(WIDE) + i] = i < count ? added[i * a->mask_query + j * a->mask_key] : 0;
    }
    const SUFFIX(ah_lanes) nothing = SUFFIX(ah_spread)((REAL)-INFINITY), unit = SUFFIX(ah_spread)((REAL)M_LOG2E);
    const SUFFIX(ah_lanes) least = SUFFIX(ah_spread)(sizeof(REAL) == sizeof(float) ? (REAL)(-FLT_MAX / 2)
                                                                                   : (REAL)(-DBL_MAX / 2));
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < lanes; i += SUFFIX(LANE)) {
            SUFFIX(ah_lanes) number = *SUFFIX(lanes)(room + j * SUFFIX(WIDE) + i);
            *SUFFIX(lanes)(scores + j * SUFFIX(WIDE) + i) +=
                SUFFIX(ah_choose)(number == nothing, nothing, SUFFIX(ah_larger)(least, number * unit));
        }
}

/* The largest score and the sum of exponentials with a further block; scores become exponentials, but for keys that no
 * query of a vector sees, s->factor the factor by which the sums so far shrink. A query that sees nothing yet has the
 * largest score -inf. */
static void SUFFIX(weigh)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                          struct SUFFIX(scratch) *s, int64_t key, int64_t block_keys, int64_t lanes)
{
    for (int64_t i = 0; i < lanes; i += SUFFIX(LANE)) {
        int64_t seen = SUFFIX(keys_before)(a, unit, i + SUFFIX(LANE), key, block_keys);
        int64_t keys = seen % 2 && seen < block_keys ? seen + 1 : seen; /* whole pairs of attention_pairs.h */
        REAL *scores = s->scores + i;
        SUFFIX(ah_lanes) before = *SUFFIX(lanes)(s->largest + i), largest = before, odd = before;
        for (int64_t j = 0; j + 1 < keys; j += 2) {
            largest = SUFFIX(ah_larger)(*SUFFIX(lanes)(scores + j * SUFFIX(WIDE)), largest);
            odd = SUFFIX(ah_larger)(*SUFFIX(lanes)(scores + (j + 1) * SUFFIX(WIDE)), odd);
        }
        if (keys % 2)
            largest = SUFFIX(ah_larger)(*SUFFIX(lanes)(scores + (keys - 1) * SUFFIX(WIDE)), largest);
        largest = SUFFIX(ah_larger)(odd, largest);
        SUFFIX(ah_lanes) nothing = SUFFIX(ah_spread)((REAL)-INFINITY);
        SUFFIX(ah_lanes) base = SUFFIX(ah_choose)(largest == nothing, SUFFIX(ah_spread)(0), largest);
        SUFFIX(ah_lanes) factor = SUFFIX(ah_exp2_down)(before - base), total = *SUFFIX(lanes)(s->total + i) * factor;
        for (int64_t j = 0; j < keys; j++) {
            SUFFIX(ah_lanes_at) *at = SUFFIX(lanes)(scores + j * SUFFIX(WIDE));
            SUFFIX(ah_lanes) e = SUFFIX(ah_exp2_down)(*at - base);
            *at = e;
            total += e;
        }
        *SUFFIX(lanes)(s->largest + i) = largest;
        *SUFFIX(lanes)(s->factor + i) = factor;
        *SUFFIX(lanes)(s->total + i) = total;
    }
}

/* Multiply the accumulated values by the factor of each query. */
static void SUFFIX(shrink)(struct SUFFIX(scratch) *s, int64_t count, int64_t width)
{
    for (int64_t i = 0; i < count; i++) {
        SUFFIX(ah_lanes) factor = SUFFIX(ah_spread)(s->factor[i]);
        for (int64_t d = 0; d < width; d += SUFFIX(LANE))
            *SUFFIX(lanes)(s->sums + i * width + d) *= factor;
    }
}

/* Zeros where a weight does not stay; the others times scale. */
static void SUFFIX(drop)(REAL *weights, const uint64_t *keep, REAL scale, int64_t keys, int64_t lanes)
{
    for (int64_t j = 0; j < keys; j++, weights += SUFFIX(WIDE)) {
        for (int64_t i = 0; i < lanes; i += SUFFIX(LANE)) {
            SUFFIX(ah_lanes_at) *at = SUFFIX(lanes)(weights + i);
            SUFFIX(ah_lanes) scaled = *at * SUFFIX(ah_spread)(scale);
            *at = SUFFIX(ah_choose)(SUFFIX(chosen)(keep[j] >> i), scaled, SUFFIX(ah_spread)(0));
        }
    }
}

static const uint64_t *SUFFIX(keep_at)(const struct ah_attention *a, const struct ah_attention_unit *unit)
{
    const struct ah_attention_span *span = unit->span;
    int64_t blocks = ah_attention_blocks(span->queries);
    return a->keep + span->words + (unit->head * blocks + unit->first / AH_ATTENTION_QUERIES) * span->keys;
}
