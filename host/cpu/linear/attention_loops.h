/* Attention over blocks for one element type (cpu/loop/for_reals.h): scores of up to AH_ATTENTION_QUERIES queries,
 * which are the lanes of vectors, against one block of keys after the other. Forward keeps for each query the largest
 * score so far and the sum of exponentials (Milakov and Gimelshein, 2018; Dao et al., 2022), backward computes the
 * weights again from the logarithm of that sum. */

enum { SUFFIX(WIDE) = AH_ATTENTION_QUERIES };

/* A thread's scratch memory. Scores are stored as [key][query], transposed operands as [item][query]. */
struct SUFFIX(scratch) {
    REAL *turned_query, *turned_grad, *sums, *scores, *weights, *steps;
    REAL largest[AH_ATTENTION_QUERIES], total[AH_ATTENTION_QUERIES], factor[AH_ATTENTION_QUERIES];
};

static size_t SUFFIX(scratch_items)(const struct ah_attention *a)
{
    int64_t width = a->width > a->value_width ? a->width : a->value_width;
    return (size_t)(3 * width + 3 * AH_ATTENTION_KEYS) * SUFFIX(WIDE);
}

static void SUFFIX(scratch_at)(struct SUFFIX(scratch) *s, const struct ah_attention *a, REAL *block)
{
    int64_t width = a->width > a->value_width ? a->width : a->value_width;
    int64_t turned = width * SUFFIX(WIDE), scores = AH_ATTENTION_KEYS * SUFFIX(WIDE);
    s->turned_query = block;
    s->turned_grad = block + turned;
    s->sums = block + 2 * turned;
    s->scores = block + 3 * turned;
    s->weights = s->scores + scores;
    s->steps = s->weights + scores;
}

/* Query i of a unit, and key j, as seen from the unit's first query and the span's first key. */
static REAL *SUFFIX(query_row)(const struct ah_attention_rows *rows, const struct ah_attention_unit *unit, int64_t i)
{
    const struct ah_attention_span *span = unit->span;
    return (REAL *)rows->data + span->number * rows->batch + (span->query + unit->first + i) * rows->token +
           unit->head * rows->head;
}

static REAL *SUFFIX(key_row)(const struct ah_attention *a, const struct ah_attention_rows *rows,
                             const struct ah_attention_unit *unit, int64_t j)
{
    const struct ah_attention_span *span = unit->span;
    return (REAL *)rows->data + span->number * rows->batch + (span->key + j) * rows->token +
           unit->head / a->group * rows->head;
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

/* The keys that some query of the unit sees: [*begin, *end). */
static void SUFFIX(visible)(const struct ah_attention *a, const struct ah_attention_unit *unit, int64_t count,
                            int64_t *begin, int64_t *end)
{
    const struct ah_attention_span *span = unit->span;
    int64_t first = unit->first + span->diagonal - a->left, last = unit->first + count + span->diagonal + a->right;
    *begin = a->left < 0 || first < 0 ? 0 : first < span->keys ? first : span->keys;
    *end = a->right < 0 || last > span->keys ? span->keys : last > *begin ? last : *begin;
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

/* A mask of numbers is added, turned in `room`. */
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
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < lanes; i += SUFFIX(LANE))
            *SUFFIX(lanes)(scores + j * SUFFIX(WIDE) + i) += *SUFFIX(lanes)(room + j * SUFFIX(WIDE) + i);
}

/* scores = turned_query^T keys, masked. */
static void SUFFIX(score)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                          const struct SUFFIX(scratch) *s, int64_t key, int64_t keys, int64_t count, int64_t lanes)
{
    SUFFIX(multiply)(&(struct SUFFIX(product)){
        .m = keys, .n = lanes, .depth = a->width, .a = SUFFIX(key_row)(a, &a->key, unit, key),
        .a_row = a->key.token, .a_step = 1, .b = s->turned_query, .b_row = SUFFIX(WIDE), .c = s->scores,
        .c_row = SUFFIX(WIDE), .far = true});
    if (a->left >= 0 || a->right >= 0)
        SUFFIX(mask_places)(a, unit, s->scores, key, keys, lanes);
    int64_t at = unit->span->number * a->mask_batch + unit->head * a->mask_head + unit->first * a->mask_query +
                 key * a->mask_key;
    if (a->mask && a->boolean)
        SUFFIX(mask_seen)(a, (const uint8_t *)a->mask + at, s->scores, keys, count, lanes);
    else if (a->mask)
        SUFFIX(mask_added)(a, (const REAL *)a->mask + at, s->scores, s->weights, keys, count, lanes);
}

/* The largest score and the sum of exponentials with a further block; scores become exponentials, s->factor the factor
 * by which the sums so far shrink. A query that sees nothing yet has the largest score -inf. */
static void SUFFIX(weigh)(struct SUFFIX(scratch) *s, int64_t keys, int64_t lanes)
{
    for (int64_t i = 0; i < lanes; i += SUFFIX(LANE)) {
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
        SUFFIX(ah_lanes) factor = SUFFIX(ah_exp_down)(before - base), total = *SUFFIX(lanes)(s->total + i) * factor;
        for (int64_t j = 0; j < keys; j++) {
            SUFFIX(ah_lanes_at) *at = SUFFIX(lanes)(scores + j * SUFFIX(WIDE));
            SUFFIX(ah_lanes) e = SUFFIX(ah_exp_down)(*at - base);
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

/* Write the results of the unit's queries: sums divided by the totals; zeros where all keys are masked. */
static void SUFFIX(finish)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                           struct SUFFIX(scratch) *s, int64_t count)
{
    int64_t width = a->value_width;
    REAL *lse = (REAL *)a->lse + unit->head * a->rows + unit->span->row + unit->first;
#pragma omp simd
    for (int i = 0; i < AH_ATTENTION_QUERIES; i++) {
        s->largest[i] = s->total[i] == 0 ? (REAL)INFINITY : s->largest[i] + SUFFIX(log)(s->total[i]);
        s->factor[i] = s->total[i] == 0 ? 0 : 1 / s->total[i];
    }
    memcpy(lse, s->largest, (size_t)count * sizeof *lse);
    for (int64_t i = 0; i < count; i++) {
        REAL *restrict to = SUFFIX(query_row)(&a->out, unit, i), factor = s->factor[i];
        const REAL *restrict from = s->sums + i * width;
#pragma omp simd
        for (int64_t d = 0; d < a->out.width; d++)
            to[d] = from[d] * factor;
    }
}

static void SUFFIX(attend)(const struct ah_attention *a, const struct ah_attention_unit *unit, void *block)
{
    const struct ah_attention_span *span = unit->span;
    int64_t left = span->queries - unit->first, count = left < AH_ATTENTION_QUERIES ? left : AH_ATTENTION_QUERIES;
    int64_t lanes = (count + SUFFIX(LANE) - 1) / SUFFIX(LANE) * SUFFIX(LANE), begin, end;
    struct SUFFIX(scratch) s;
    const uint64_t *keep = a->keep ? SUFFIX(keep_at)(a, unit) : NULL;
    SUFFIX(scratch_at)(&s, a, block);
    SUFFIX(visible)(a, unit, count, &begin, &end);
    SUFFIX(turn)(s.turned_query, SUFFIX(query_row)(&a->query, unit, 0), a->query.token, count,
                 a->width, (REAL)a->scale);
    for (int64_t i = 0; i < AH_ATTENTION_QUERIES; i++) {
        s.largest[i] = (REAL)-INFINITY;
        s.total[i] = 0;
    }
    if (begin == end)
        memset(s.sums, 0, (size_t)(count * a->value_width) * sizeof *s.sums);
    for (int64_t key = begin; key < end; key += AH_ATTENTION_KEYS) {
        int64_t keys = end - key < AH_ATTENTION_KEYS ? end - key : AH_ATTENTION_KEYS;
        SUFFIX(score)(a, unit, &s, key, keys, count, lanes);
        SUFFIX(weigh)(&s, keys, lanes);
        if (keep)
            SUFFIX(drop)(s.scores, keep + key, (REAL)a->keep_scale, keys, lanes);
        if (key > begin)
            SUFFIX(shrink)(&s, count, a->value_width);
        SUFFIX(multiply)(&(struct SUFFIX(product)){
            .m = count, .n = a->value_width, .depth = keys, .a = s.scores, .a_row = 1, .a_step = SUFFIX(WIDE),
            .b = SUFFIX(key_row)(a, &a->value, unit, key), .b_row = a->value.token, .c = s.sums,
            .c_row = a->value_width, .add = key > begin});
    }
    SUFFIX(finish)(a, unit, &s, count);
}

/* Back. */

/* s->factor = sum of output * gradient of each query, s->largest = its log-sum-exp. */
static void SUFFIX(correct)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                            struct SUFFIX(scratch) *s, int64_t count)
{
    const REAL *lse = (const REAL *)a->lse + unit->head * a->rows + unit->span->row + unit->first;
    for (int64_t i = 0; i < AH_ATTENTION_QUERIES; i++) {
        s->largest[i] = (REAL)INFINITY;
        s->factor[i] = 0;
    }
    for (int64_t i = 0; i < count; i++) {
        const REAL *out = SUFFIX(query_row)(&a->out, unit, i), *grad = SUFFIX(query_row)(&a->grad, unit, i);
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < a->out.width; d++)
            sum += out[d] * grad[d];
        s->factor[i] = sum;
        s->largest[i] = lse[i];
    }
}

/* Of one block: weights into s->weights, as dropped as they were, and the gradient of the scores, times scale, into
 * s->steps. */
static void SUFFIX(weigh_back)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                               struct SUFFIX(scratch) *s, const uint64_t *keep, int64_t key, int64_t keys,
                               int64_t count, int64_t lanes)
{
    REAL scale = (REAL)a->scale, keep_scale = (REAL)a->keep_scale;
    SUFFIX(score)(a, unit, s, key, keys, count, lanes);
    SUFFIX(multiply)(&(struct SUFFIX(product)){
        .m = keys, .n = lanes, .depth = a->value_width,
        .a = SUFFIX(key_row)(a, &a->value, unit, key), .a_row = a->value.token,
        .a_step = 1, .b = s->turned_grad, .b_row = SUFFIX(WIDE), .c = s->steps, .c_row = SUFFIX(WIDE), .far = true});
    if (keep)
        SUFFIX(drop)(s->steps, keep, keep_scale, keys, lanes);
    for (int64_t i = 0; i < lanes; i += SUFFIX(LANE)) {
        SUFFIX(ah_lanes) lse = *SUFFIX(lanes)(s->largest + i), factor = *SUFFIX(lanes)(s->factor + i);
        for (int64_t j = 0; j < keys; j++) {
            SUFFIX(ah_lanes_at) *step = SUFFIX(lanes)(s->steps + j * SUFFIX(WIDE) + i);
            SUFFIX(ah_lanes) weight = SUFFIX(ah_exp_down)(*SUFFIX(lanes)(s->scores + j * SUFFIX(WIDE) + i) - lse);
            *SUFFIX(lanes)(s->weights + j * SUFFIX(WIDE) + i) = weight;
            *step = weight * (*step - factor) * SUFFIX(ah_spread)(scale);
        }
    }
    if (keep)
        SUFFIX(drop)(s->weights, keep, keep_scale, keys, lanes);
}

/* Zeros for the gradients of keys that nothing has been written to. */
static void SUFFIX(clear_keys)(const struct ah_attention *a, const struct ah_attention_unit *unit, int64_t begin,
                               int64_t end)
{
    for (int64_t j = begin; j < end; j++) {
        memset(SUFFIX(key_row)(a, &a->grad_key, unit, j), 0, (size_t)a->width * sizeof(REAL));
        memset(SUFFIX(key_row)(a, &a->grad_value, unit, j), 0, (size_t)a->value_width * sizeof(REAL));
    }
}

/* Add a block of weights to the gradients of its keys and values, and of the unit's queries at `to`. */
static void SUFFIX(spread)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                           const struct SUFFIX(scratch) *s, int64_t key, int64_t keys, int64_t count, bool add_keys,
                           REAL *to, int64_t to_row, bool add_queries)
{
    SUFFIX(multiply)(&(struct SUFFIX(product)){
        .m = keys, .n = a->value_width, .depth = count, .a = s->weights, .a_row = SUFFIX(WIDE), .a_step = 1,
        .b = SUFFIX(query_row)(&a->grad, unit, 0), .b_row = a->grad.token,
        .c = SUFFIX(key_row)(a, &a->grad_value, unit, key), .c_row = a->grad_value.token, .add = add_keys});
    SUFFIX(multiply)(&(struct SUFFIX(product)){
        .m = keys, .n = a->width, .depth = count, .a = s->steps, .a_row = SUFFIX(WIDE), .a_step = 1,
        .b = SUFFIX(query_row)(&a->query, unit, 0), .b_row = a->query.token,
        .c = SUFFIX(key_row)(a, &a->grad_key, unit, key), .c_row = a->grad_key.token, .add = add_keys});
    SUFFIX(multiply)(&(struct SUFFIX(product)){
        .m = count, .n = a->width, .depth = keys, .a = s->steps, .a_row = 1, .a_step = SUFFIX(WIDE),
        .b = SUFFIX(key_row)(a, &a->key, unit, key), .b_row = a->key.token, .c = to, .c_row = to_row,
        .add = add_queries});
}

/* Add the share of a unit to the gradients of keys and values, and write those of its queries. `written`: number of
 * keys that have had a share before. */
static void SUFFIX(attend_back)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                                struct SUFFIX(scratch) *s, int64_t *written)
{
    int64_t left = unit->span->queries - unit->first, count = left < AH_ATTENTION_QUERIES ? left : AH_ATTENTION_QUERIES;
    int64_t lanes = (count + SUFFIX(LANE) - 1) / SUFFIX(LANE) * SUFFIX(LANE), begin, end;
    const uint64_t *keep = a->keep ? SUFFIX(keep_at)(a, unit) : NULL;
    bool direct = a->grad_query.width == a->width;
    REAL *to = direct ? SUFFIX(query_row)(&a->grad_query, unit, 0) : s->sums;
    int64_t to_row = direct ? a->grad_query.token : a->width;
    SUFFIX(visible)(a, unit, count, &begin, &end);
    SUFFIX(turn)(s->turned_query, SUFFIX(query_row)(&a->query, unit, 0), a->query.token, count, a->width,
                 (REAL)a->scale);
    SUFFIX(turn)(s->turned_grad, SUFFIX(query_row)(&a->grad, unit, 0), a->grad.token, count, a->value_width, 1);
    SUFFIX(correct)(a, unit, s, count);
    for (int64_t i = 0; i < count && begin == end; i++)
        memset(to + i * to_row, 0, (size_t)a->width * sizeof *to);
    for (int64_t key = begin; key < end; key += AH_ATTENTION_KEYS) {
        int64_t keys = end - key < AH_ATTENTION_KEYS ? end - key : AH_ATTENTION_KEYS;
        bool fresh = key >= *written;
        SUFFIX(weigh_back)(a, unit, s, keep ? keep + key : NULL, key, keys, count, lanes);
        SUFFIX(clear_keys)(a, unit, *written, fresh ? key : key + keys);
        *written = key + keys > *written ? key + keys : *written;
        SUFFIX(spread)(a, unit, s, key, keys, count, !fresh, to, to_row, key > begin);
    }
    for (int64_t i = 0; i < count && !direct; i++)
        memcpy(SUFFIX(query_row)(&a->grad_query, unit, i), to + i * to_row, (size_t)a->grad_query.width * sizeof *to);
}

/* All queries that share one head of key and value. */
static void SUFFIX(attend_group_back)(const struct ah_attention *a, const struct ah_attention_unit *group,
                                      void *block)
{
    struct SUFFIX(scratch) s;
    struct ah_attention_unit unit = *group;
    int64_t written = 0;
    SUFFIX(scratch_at)(&s, a, block);
    for (; unit.head < group->head + a->group; unit.head++)
        for (unit.first = 0; unit.first < unit.span->queries; unit.first += AH_ATTENTION_QUERIES)
            SUFFIX(attend_back)(a, &unit, &s, &written);
    SUFFIX(clear_keys)(a, group, written, group->span->room);
}
