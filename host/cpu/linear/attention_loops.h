/* Attention over blocks for one kind of items (attention_factors.h, attention_pairs.h): up to AH_ATTENTION_QUERIES
 * queries against one block of keys after the other. Forward keeps for each query the largest score so far and the sum
 * of exponentials (Milakov and Gimelshein, 2018; Dao et al., 2022), backward computes the weights again from the
 * logarithm of that sum. */

static size_t KIND(scratch_bytes)(const struct ah_attention *a)
{
    return KIND(scratch_layout)(&(struct SUFFIX(scratch)){0}, a, NULL);
}

/* Query i of a unit, and key j, as seen from the unit's first query and the span's first key. */
static ITEM *KIND(query_row)(const struct ah_attention_rows *rows, const struct ah_attention_unit *unit, int64_t i)
{
    const struct ah_attention_span *span = unit->span;
    return (ITEM *)rows->data + span->number * rows->batch + (span->query + unit->first + i) * rows->token +
           unit->head * rows->head;
}

static ITEM *KIND(key_row)(const struct ah_attention *a, const struct ah_attention_rows *rows,
                           const struct ah_attention_unit *unit, int64_t j)
{
    const struct ah_attention_span *span = unit->span;
    return (ITEM *)rows->data + span->number * rows->batch + (span->key + j) * rows->token +
           unit->head / a->group * rows->head;
}

/* to = turned^T rows of a block of keys. Queries of whole vectors that see none of some keys are left out. */
static void KIND(multiply_keys)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                                const struct ah_attention_rows *rows, int64_t width, const void *turned, REAL scale,
                                REAL *to, int64_t key, int64_t keys, int64_t lanes)
{
    int64_t together = SUFFIX(keys_together)(a, unit, lanes, key, keys);
    for (int64_t j = 0; j < keys; j += together) {
        int64_t from = SUFFIX(queries_before)(a, unit, lanes, key + j);
        KIND(multiply)(&(struct KIND(product)){
            .m = keys - j < together ? keys - j : together, .n = lanes - from, .depth = KIND(factors_of)(width),
            .a = KIND(key_row)(a, rows, unit, key + j), .a_row = rows->token * (int64_t)sizeof(ITEM),
            .a_step = sizeof(FACTOR), .b = (const FACTOR *)turned + from, .b_row = SUFFIX(WIDE),
            .c = to + j * SUFFIX(WIDE) + from, .c_row = SUFFIX(WIDE), .scale = scale, .far = true});
    }
}

/* scores = turned_query^T keys, masked. */
static void KIND(score)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                        const struct SUFFIX(scratch) *s, int64_t key, int64_t keys, int64_t count, int64_t lanes)
{
    KIND(multiply_keys)(a, unit, &a->key, a->width, s->turned_query, SUFFIX(score_scale)(a), s->scores, key,
                        keys, lanes);
    if (a->left >= 0 || a->right >= 0)
        SUFFIX(mask_places)(a, unit, s->scores, key, keys, lanes);
    int64_t at = unit->span->number * a->mask_batch + unit->head * a->mask_head + unit->first * a->mask_query +
                 key * a->mask_key;
    if (a->mask && a->boolean)
        SUFFIX(mask_seen)(a, (const uint8_t *)a->mask + at, s->scores, keys, count, lanes);
    else if (a->mask)
        SUFFIX(mask_added)(a, (const REAL *)a->mask + at, s->scores, s->weights, keys, count, lanes);
}

/* Round `width` numbers to items. */
static inline void KIND(write_row)(ITEM *restrict to, const REAL *restrict from, int64_t width)
{
#pragma omp simd
    for (int64_t d = 0; d < width; d++)
        to[d] = KIND(item)(from[d]);
}

/* Write the results of the unit's queries: sums divided by the totals; zeros where all keys are masked. */
static void KIND(finish)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                         struct SUFFIX(scratch) *s, int64_t count)
{
    int64_t width = a->value_width;
    REAL *lse = (REAL *)a->lse + unit->head * a->rows + unit->span->row + unit->first;
#pragma omp simd
    for (int i = 0; i < AH_ATTENTION_QUERIES; i++) {
        s->largest[i] = s->total[i] == 0 ? (REAL)INFINITY : s->largest[i] * (REAL)M_LN2 + SUFFIX(log)(s->total[i]);
        s->factor[i] = s->total[i] == 0 ? 0 : 1 / s->total[i];
    }
    memcpy(lse, s->largest, (size_t)count * sizeof *lse);
    for (int64_t i = 0; i < count; i++) {
        ITEM *restrict to = KIND(query_row)(&a->out, unit, i);
        const REAL *restrict from = s->sums + i * width, factor = s->factor[i];
#pragma omp simd
        for (int64_t d = 0; d < a->out.width; d++)
            to[d] = KIND(item)(from[d] * factor);
    }
}

/* Few queries, such as the heads of a decoder's next token that share keys, would leave most lanes of their vectors
 * empty: here the keys of a block are the lanes, and scores are stored as [query][key]. Rows are fetched ahead: a
 * decoder has read all its weights since it read them, and the processor's own prefetching ends at each page. */

enum {
    KIND(FEW) = 8,
    KIND(FEW_KEYS) = AH_ATTENTION_KEYS * SUFFIX(WIDE) / KIND(FEW), /* of a block: it has as many scores as others */
    KIND(PER) = SUFFIX(LANE) * sizeof(REAL) / sizeof(ITEM),        /* items in a vector */
    KIND(AHEAD) = 2048,                                            /* bytes */
};

static bool KIND(are_few)(const struct ah_attention *a, int64_t count)
{
    return count <= KIND(FEW) && a->left < 0 && a->right < 0 && !a->keep &&
           (!a->mask || (a->boolean && a->mask_key == 1));
}

/* Narrow [*begin, *end) to the first and the last key that a query sees. `seen`: the mask of key 0, or NULL. */
static void KIND(narrow_few)(const struct ah_attention *a, const uint8_t *seen, int64_t count, int64_t *begin,
                             int64_t *end)
{
    int64_t first = *end, last = *begin;
    for (int64_t i = 0; seen && i < (a->mask_query ? count : 1); i++) {
        const uint8_t *row = seen + i * a->mask_query;
        const uint8_t *at = memchr(row + *begin, 1, (size_t)(*end - *begin));
        int64_t left = *end;
        while (at && !row[left - 1])
            left--;
        first = at && at - row < first ? at - row : first;
        last = at && left > last ? left : last;
    }
    if (seen) {
        *begin = first < last ? first : last;
        *end = last;
    }
}

/* Fetch `count` rows of `width` items. */
static inline void KIND(fetch_rows)(const ITEM *rows, int64_t step, int64_t count, int64_t width)
{
    for (int64_t j = 0; j < count; j++)
        for (int64_t d = 0; d < width; d += 64 / (int64_t)sizeof(ITEM))
            __builtin_prefetch(rows + j * step + d);
}

/* Add the products of a vector of each of `m` queries and of FOLD rows, LANE / FOLD apart, to their sums. */
static inline __attribute__((always_inline)) void
KIND(dots_step)(SUFFIX(ah_lanes) (*sum)[SUFFIX(FOLD)], const int m, const ITEM *query, int64_t query_step,
                const ITEM *rows, int64_t step, const bool whole)
{
    SUFFIX(ah_lanes) row[SUFFIX(FOLD)];
#pragma GCC unroll 4
    for (int j = 0; j < SUFFIX(FOLD); j++)
        row[j] = KIND(row_factors)(rows + j * (SUFFIX(LANE) / SUFFIX(FOLD)) * step, whole);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        SUFFIX(ah_lanes) x = KIND(row_factors)(query + i * query_step, whole);
#pragma GCC unroll 4
        for (int j = 0; j < SUFFIX(FOLD); j++)
            sum[i][j] = KIND(add_product)(x, row[j], sum[i][j]);
    }
}

/* to[i][j] = scale * the product of query i and row j, of `m` queries and as many rows as a vector has lanes. */
static inline __attribute__((always_inline)) void KIND(dots)(REAL *to, const int m, const ITEM *query,
                                                             int64_t query_step, const ITEM *rows, int64_t step,
                                                             int64_t width, REAL scale)
{
    enum { FOLD = SUFFIX(FOLD), GROUPS = SUFFIX(LANE) / FOLD };
    SUFFIX(ah_lanes) part[4][GROUPS];
    for (int g = 0; g < GROUPS; g++, rows += step) {
        SUFFIX(ah_lanes) sum[4][FOLD] = {{{0}}};
        int64_t d = 0;
        for (; d + KIND(PER) <= width; d += KIND(PER))
            KIND(dots_step)(sum, m, query + d, query_step, rows + d, step, true);
        if (d < width)
            KIND(dots_step)(sum, m, query + d, query_step, rows + d, step, false);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++)
            part[i][g] = SUFFIX(folded)(sum[i], FOLD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
        *SUFFIX(lanes)(to + i * KIND(FEW_KEYS)) = SUFFIX(folded)(part[i], GROUPS) * SUFFIX(ah_spread)(scale);
}

/* The same of `count` queries. Not inlined: the sums of a larger function are not kept in registers. */
static __attribute__((noinline)) void KIND(dots_of)(REAL *to, int64_t count, const ITEM *query, int64_t query_step,
                                                    const ITEM *rows, int64_t step, int64_t width, REAL scale)
{
    for (; count >= 4; count -= 4, to += 4 * KIND(FEW_KEYS), query += 4 * query_step)
        KIND(dots)(to, 4, query, query_step, rows, step, width, scale);
    switch (count) {
    case 3: KIND(dots)(to, 3, query, query_step, rows, step, width, scale); break;
    case 2: KIND(dots)(to, 2, query, query_step, rows, step, width, scale); break;
    case 1: KIND(dots)(to, 1, query, query_step, rows, step, width, scale); break;
    default: break;
    }
}

/* The scores of a block, -inf where a key is not seen and beyond the last one. */
static void KIND(score_few)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                            const struct SUFFIX(scratch) *s, const uint8_t *seen, int64_t key, int64_t keys,
                            int64_t count)
{
    const ITEM *rows = KIND(key_row)(a, &a->key, unit, key), *values = KIND(key_row)(a, &a->value, unit, key);
    int64_t step = a->key.token, ahead = KIND(AHEAD) / (int64_t)sizeof(ITEM);
    for (int64_t j = 0; j < keys; j += SUFFIX(LANE), rows += SUFFIX(LANE) * step) {
        int64_t left = keys - j < SUFFIX(LANE) ? keys - j : SUFFIX(LANE);
        KIND(fetch_rows)(rows + ahead, step, left, a->width);
        KIND(fetch_rows)(values + j * a->value.token, a->value.token, left, a->value_width);
        if (left < SUFFIX(LANE)) {
            ITEM *room = s->turned_query;
            memset(room, 0, (size_t)(SUFFIX(LANE) * a->width) * sizeof *room);
            for (int64_t i = 0; i < left; i++)
                memcpy(room + i * a->width, rows + i * step, (size_t)a->width * sizeof *room);
            rows = room;
            step = a->width;
        }
        KIND(dots_of)(s->scores + j, count, KIND(query_row)(&a->query, unit, 0), a->query.token, rows, step, a->width,
                      SUFFIX(score_scale)(a));
    }
    for (int64_t i = 0; i < count; i++) {
        REAL *row = s->scores + i * KIND(FEW_KEYS);
        for (int64_t j = 0; seen && j < keys; j++)
            row[j] = seen[i * a->mask_query + j] ? row[j] : (REAL)-INFINITY;
        for (int64_t j = keys; j % SUFFIX(LANE); j++)
            row[j] = (REAL)-INFINITY;
    }
}

/* As `weigh`; the exponentials are written as items. */
static void KIND(weigh_few)(struct SUFFIX(scratch) *s, int64_t keys, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const REAL *row = s->scores + i * KIND(FEW_KEYS), before = s->largest[i];
        ITEM *to = (ITEM *)s->weight_items + i * KIND(FEW_KEYS);
        SUFFIX(ah_lanes) largest = SUFFIX(ah_spread)(before), total = SUFFIX(ah_spread)(0);
        for (int64_t j = 0; j < keys; j += SUFFIX(LANE))
            largest = SUFFIX(ah_larger)(*SUFFIX(lanes)(row + j), largest);
        s->largest[i] = SUFFIX(largest_lane)(largest);
        SUFFIX(ah_lanes) base = SUFFIX(ah_spread)(s->largest[i] == (REAL)-INFINITY ? 0 : s->largest[i]);
        for (int64_t j = 0; j < keys; j += SUFFIX(LANE)) {
            SUFFIX(ah_lanes) e = SUFFIX(ah_exp2_down)(*SUFFIX(lanes)(row + j) - base);
            KIND(store_items)(to + j, e);
            total += e;
        }
        SUFFIX(ah_lanes) factor = SUFFIX(ah_exp2_down)(SUFFIX(ah_spread)(before) - base);
        s->factor[i] = factor[0];
        s->total[i] = s->total[i] * factor[0] + SUFFIX(sum_lanes)(total);
    }
}

/* Add the values of a block, times their weights, to the sums. */
static void KIND(add_few)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                          const struct SUFFIX(scratch) *s, int64_t key, int64_t keys, int64_t count, bool add)
{
    const ITEM *weights = s->weight_items;
    for (int64_t j = 0; j < keys; j += AH_ATTENTION_KEYS) {
        int64_t some = keys - j < AH_ATTENTION_KEYS ? keys - j : AH_ATTENTION_KEYS, row;
        const FACTOR *value = KIND(factor_rows)(s->room_key, KIND(key_row)(a, &a->value, unit, key + j),
                                                a->value.token, some, a->value_width, &row);
        KIND(multiply)(&(struct KIND(product)){
            .m = count, .n = a->value_width, .depth = KIND(factors_of)(some), .a = weights + j,
            .a_row = KIND(FEW_KEYS) * sizeof(ITEM), .a_step = sizeof(FACTOR), .b = value, .b_row = row, .c = s->sums,
            .c_row = a->value_width, .scale = 1, .add = add || j > 0});
    }
}

static void KIND(attend_few)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                             struct SUFFIX(scratch) *s, int64_t count)
{
    int64_t begin = 0, end = unit->span->keys;
    const uint8_t *seen = a->mask;
    if (seen)
        seen += unit->span->number * a->mask_batch + unit->head * a->mask_head + unit->first * a->mask_query;
    KIND(narrow_few)(a, seen, count, &begin, &end);
    for (int64_t key = begin; key < end; key += KIND(FEW_KEYS)) {
        int64_t keys = end - key < KIND(FEW_KEYS) ? end - key : KIND(FEW_KEYS);
        KIND(score_few)(a, unit, s, seen ? seen + key : NULL, key, keys, count);
        KIND(weigh_few)(s, keys, count);
        if (key > begin)
            SUFFIX(shrink)(s, count, a->value_width);
        KIND(add_few)(a, unit, s, key, keys, count, key > begin);
    }
    if (begin == end)
        memset(s->sums, 0, (size_t)(count * a->value_width) * sizeof *s->sums);
    KIND(finish)(a, unit, s, count);
}

/* sums = weights values, or with `add` that is added to them. Keys that no query of a vector sees are left out. */
static void KIND(weigh_values)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                               const struct SUFFIX(scratch) *s, int64_t key, int64_t keys, int64_t count, bool add)
{
    int64_t row, lanes = (count + SUFFIX(LANE) - 1) / SUFFIX(LANE) * SUFFIX(LANE);
    int64_t together = SUFFIX(queries_together)(a, unit, count, key, keys);
    const FACTOR *value = KIND(factor_rows)(s->room_key, KIND(key_row)(a, &a->value, unit, key), a->value.token, keys,
                                            a->value_width, &row);
    const FACTOR *weights = KIND(factor_scores)(s->room_weights, s->scores, keys, lanes);
    for (int64_t i = 0; i < count; i += together) {
        int64_t some = count - i < together ? count - i : together;
        KIND(multiply)(&(struct KIND(product)){
            .m = some, .n = a->value_width,
            .depth = KIND(factors_of)(SUFFIX(keys_before)(a, unit, i + some, key, keys)), .a = weights + i,
            .a_row = sizeof(FACTOR), .a_step = SUFFIX(WIDE) * sizeof(FACTOR), .b = value, .b_row = row,
            .c = s->sums + i * a->value_width, .c_row = a->value_width, .scale = 1, .add = add});
    }
}

static void KIND(attend)(const struct ah_attention *a, const struct ah_attention_unit *unit, void *block)
{
    const struct ah_attention_span *span = unit->span;
    int64_t left = span->queries - unit->first, count = left < AH_ATTENTION_QUERIES ? left : AH_ATTENTION_QUERIES;
    int64_t lanes = (count + SUFFIX(LANE) - 1) / SUFFIX(LANE) * SUFFIX(LANE), begin, end;
    struct SUFFIX(scratch) s;
    const uint64_t *keep = a->keep ? SUFFIX(keep_at)(a, unit) : NULL;
    KIND(scratch_layout)(&s, a, block);
    for (int64_t i = 0; i < AH_ATTENTION_QUERIES; i++) {
        s.largest[i] = (REAL)-INFINITY;
        s.total[i] = 0;
    }
    if (KIND(are_few)(a, count)) {
        KIND(attend_few)(a, unit, &s, count);
        return;
    }
    SUFFIX(visible)(a, unit, count, &begin, &end);
    KIND(fetch_rows)(KIND(query_row)(&a->query, unit, 0), a->query.token, count, a->width);
    KIND(turn_items)(s.turned_query, KIND(query_row)(&a->query, unit, 0), a->query.token, count, a->width,
                     SUFFIX(score_scale)(a));
    if (begin == end)
        memset(s.sums, 0, (size_t)(count * a->value_width) * sizeof *s.sums);
    for (int64_t key = begin; key < end; key += AH_ATTENTION_KEYS) {
        int64_t keys = end - key < AH_ATTENTION_KEYS ? end - key : AH_ATTENTION_KEYS;
        KIND(score)(a, unit, &s, key, keys, count, lanes);
        SUFFIX(weigh)(a, unit, &s, key, keys, lanes);
        if (keep)
            SUFFIX(drop)(s.scores, keep + key, (REAL)a->keep_scale, keys, lanes);
        if (key > begin)
            SUFFIX(shrink)(&s, count, a->value_width);
        KIND(weigh_values)(a, unit, &s, key, keys, count, key > begin);
    }
    KIND(finish)(a, unit, &s, count);
}

/* Back. */

/* s->factor = sum of output * gradient of each query, s->largest = its log-sum-exp, to base 2. */
static void KIND(correct)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                          struct SUFFIX(scratch) *s, int64_t count)
{
    const REAL *lse = (const REAL *)a->lse + unit->head * a->rows + unit->span->row + unit->first;
    for (int64_t i = 0; i < AH_ATTENTION_QUERIES; i++) {
        s->largest[i] = (REAL)INFINITY;
        s->factor[i] = 0;
    }
    for (int64_t i = 0; i < count; i++) {
        const ITEM *out = KIND(query_row)(&a->out, unit, i), *grad = KIND(query_row)(&a->grad, unit, i);
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < a->out.width; d++)
            sum += KIND(real)(out[d]) * KIND(real)(grad[d]);
        s->factor[i] = sum;
        s->largest[i] = lse[i] * (REAL)M_LOG2E;
    }
}

/* Of one block: weights into s->weight_items, as dropped as they were, and the gradient of the scores, times scale,
 * into s->step_items. */
static void KIND(weigh_back)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                             struct SUFFIX(scratch) *s, const uint64_t *keep, int64_t key, int64_t keys,
                             int64_t count, int64_t lanes)
{
    const SUFFIX(ah_lanes) scale = SUFFIX(ah_spread)((REAL)a->scale), nothing = SUFFIX(ah_spread)(0);
    const SUFFIX(ah_lanes) keep_scale = SUFFIX(ah_spread)((REAL)a->keep_scale);
    int64_t together = SUFFIX(keys_together)(a, unit, lanes, key, keys);
    ITEM *weight_items = s->weight_items, *step_items = s->step_items;
    KIND(score)(a, unit, s, key, keys, count, lanes);
    KIND(multiply_keys)(a, unit, &a->value, a->value_width, s->turned_grad, 1, s->steps, key, keys, lanes);
    for (int64_t j = 0; j < keys; j++) {
        for (int64_t i = SUFFIX(queries_before)(a, unit, lanes, key + j / together * together); i < lanes;
             i += SUFFIX(LANE)) {
            int64_t at = j * SUFFIX(WIDE) + i;
            SUFFIX(ah_lanes) lse = *SUFFIX(lanes)(s->largest + i), factor = *SUFFIX(lanes)(s->factor + i);
            SUFFIX(ah_lanes) step = *SUFFIX(lanes)(s->steps + at);
            SUFFIX(ah_lanes) below = SUFFIX(ah_smaller)(nothing, *SUFFIX(lanes)(s->scores + at) - lse); /* rounding */
            SUFFIX(ah_lanes) weight = SUFFIX(ah_exp2_down)(below), dropped = weight;
            if (keep) {
                SUFFIX(ah_lane_ints) stays = SUFFIX(chosen)(keep[j] >> i);
                step = SUFFIX(ah_choose)(stays, step * keep_scale, nothing);
                dropped = SUFFIX(ah_choose)(stays, weight * keep_scale, nothing);
            }
            KIND(store_items)(weight_items + at, dropped);
            KIND(store_items)(step_items + at, weight * (step - factor) * scale);
        }
    }
}

/* Zeros for the gradients of keys that nothing has been written to. */
static void KIND(clear_keys)(const struct ah_attention *a, const struct SUFFIX(scratch) *s, int64_t begin, int64_t end)
{
    for (int64_t j = begin; j < end; j++) {
        memset(s->key_sums + j * s->key_step, 0, (size_t)a->width * sizeof(REAL));
        memset(s->value_sums + j * s->value_step, 0, (size_t)a->value_width * sizeof(REAL));
    }
}

/* A unit's rows of queries and of their gradients as second factors of products. */
struct KIND(query_factors) {
    const FACTOR *query, *grad;
    int64_t query_row, grad_row;
};

/* Add a block of weights to the gradients of its keys and values, and of the unit's queries at `to`. */
static void KIND(spread)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                         const struct SUFFIX(scratch) *s, const struct KIND(query_factors) *q, int64_t key,
                         int64_t keys, int64_t count, bool add_keys, REAL *to, int64_t to_row, bool add_queries)
{
    const int64_t item_row = SUFFIX(WIDE) * sizeof(ITEM);
    const int64_t lanes = (count + SUFFIX(LANE) - 1) / SUFFIX(LANE) * SUFFIX(LANE);
    int64_t row, step_row, together = SUFFIX(keys_together)(a, unit, lanes, key, keys);
    for (int64_t j = 0; j < keys; j += together) {
        int64_t some = keys - j < together ? keys - j : together;
        int64_t from = SUFFIX(queries_before)(a, unit, lanes, key + j), depth = KIND(factors_of)(count - from);
        int64_t before = KIND(factors_of)(from), at = j * SUFFIX(WIDE) + from;
        KIND(multiply)(&(struct KIND(product)){
            .m = some, .n = a->value_width, .depth = depth, .a = (const ITEM *)s->weight_items + at, .a_row = item_row,
            .a_step = sizeof(FACTOR), .b = q->grad + before * q->grad_row, .b_row = q->grad_row,
            .c = s->value_sums + (key + j) * s->value_step, .c_row = s->value_step, .scale = 1, .add = add_keys});
        KIND(multiply)(&(struct KIND(product)){
            .m = some, .n = a->width, .depth = depth, .a = (const ITEM *)s->step_items + at, .a_row = item_row,
            .a_step = sizeof(FACTOR), .b = q->query + before * q->query_row, .b_row = q->query_row,
            .c = s->key_sums + (key + j) * s->key_step, .c_row = s->key_step, .scale = 1, .add = add_keys});
    }
    const FACTOR *keys_at = KIND(factor_rows)(s->room_key, KIND(key_row)(a, &a->key, unit, key), a->key.token, keys,
                                              a->width, &row);
    const FACTOR *steps = KIND(factor_rows)(s->room_weights, s->step_items, SUFFIX(WIDE), keys, lanes, &step_row);
    together = SUFFIX(queries_together)(a, unit, count, key, keys);
    for (int64_t i = 0; i < count; i += together) {
        KIND(multiply)(&(struct KIND(product)){
            .m = count - i < together ? count - i : together, .n = a->width,
            .depth = KIND(factors_of)(SUFFIX(keys_before)(a, unit, i + together, key, keys)), .a = steps + i,
            .a_row = sizeof(FACTOR), .a_step = step_row * (int64_t)sizeof(FACTOR), .b = keys_at, .b_row = row,
            .c = to + i * to_row, .c_row = to_row, .scale = 1, .add = add_queries});
    }
}

/* Add the share of a unit to the gradients of keys and values, and write those of its queries. `written`: number of
 * keys that have had a share before. */
static void KIND(attend_back)(const struct ah_attention *a, const struct ah_attention_unit *unit,
                              struct SUFFIX(scratch) *s, int64_t *written)
{
    int64_t left = unit->span->queries - unit->first, count = left < AH_ATTENTION_QUERIES ? left : AH_ATTENTION_QUERIES;
    int64_t lanes = (count + SUFFIX(LANE) - 1) / SUFFIX(LANE) * SUFFIX(LANE), begin, end;
    const uint64_t *keep = a->keep ? SUFFIX(keep_at)(a, unit) : NULL;
    bool direct = a->grad_query.width == a->width && sizeof(ITEM) == sizeof(REAL);
    REAL *to = direct ? (REAL *)KIND(query_row)(&a->grad_query, unit, 0) : s->sums;
    int64_t to_row = direct ? a->grad_query.token : a->width;
    ITEM *query = KIND(query_row)(&a->query, unit, 0), *grad = KIND(query_row)(&a->grad, unit, 0);
    struct KIND(query_factors) q;
    SUFFIX(visible)(a, unit, count, &begin, &end);
    KIND(fetch_rows)(query, a->query.token, count, a->width);
    KIND(fetch_rows)(grad, a->grad.token, count, a->value_width);
    KIND(fetch_rows)(KIND(query_row)(&a->out, unit, 0), a->out.token, count, a->out.width);
    KIND(turn_items)(s->turned_query, query, a->query.token, count, a->width, SUFFIX(score_scale)(a));
    KIND(turn_items)(s->turned_grad, grad, a->grad.token, count, a->value_width, 1);
    q.query = KIND(factor_rows)(s->room_query, query, a->query.token, count, a->width, &q.query_row);
    q.grad = KIND(factor_rows)(s->room_grad, grad, a->grad.token, count, a->value_width, &q.grad_row);
    KIND(correct)(a, unit, s, count);
    for (int64_t i = 0; i < count && begin == end; i++)
        memset(to + i * to_row, 0, (size_t)a->width * sizeof *to);
    for (int64_t key = begin; key < end; key += AH_ATTENTION_KEYS) {
        int64_t keys = end - key < AH_ATTENTION_KEYS ? end - key : AH_ATTENTION_KEYS;
        bool fresh = key >= *written;
        KIND(weigh_back)(a, unit, s, keep ? keep + key : NULL, key, keys, count, lanes);
        KIND(clear_keys)(a, s, *written, fresh ? key : key + keys);
        *written = key + keys > *written ? key + keys : *written;
        KIND(spread)(a, unit, s, &q, key, keys, count, !fresh, to, to_row, key > begin);
    }
    for (int64_t i = 0; i < count && !direct; i++)
        KIND(write_row)(KIND(query_row)(&a->grad_query, unit, i), to + i * to_row, a->grad_query.width);
}

/* The sums of the gradients of a head's keys and values: in the results where these are REAL, else in scratch
 * memory. */
static void KIND(open_sums)(const struct ah_attention *a, const struct ah_attention_unit *group,
                            struct SUFFIX(scratch) *s)
{
    if (s->key_sums)
        return;
    s->key_sums = (REAL *)KIND(key_row)(a, &a->grad_key, group, 0);
    s->value_sums = (REAL *)KIND(key_row)(a, &a->grad_value, group, 0);
    s->key_step = a->grad_key.token;
    s->value_step = a->grad_value.token;
}

static void KIND(close_sums)(const struct ah_attention *a, const struct ah_attention_unit *group,
                             const struct SUFFIX(scratch) *s)
{
    for (int64_t j = 0; j < group->span->room && sizeof(ITEM) != sizeof(REAL); j++) {
        KIND(write_row)(KIND(key_row)(a, &a->grad_key, group, j), s->key_sums + j * s->key_step, a->grad_key.width);
        KIND(write_row)(KIND(key_row)(a, &a->grad_value, group, j), s->value_sums + j * s->value_step,
                        a->grad_value.width);
    }
}

/* All queries that share one head of key and value. */
static void KIND(attend_group_back)(const struct ah_attention *a, const struct ah_attention_unit *group,
                                    void *block)
{
    struct SUFFIX(scratch) s;
    struct ah_attention_unit unit = *group;
    int64_t written = 0;
    KIND(scratch_layout)(&s, a, block);
    KIND(open_sums)(a, group, &s);
    for (; unit.head < group->head + a->group; unit.head++)
        for (unit.first = 0; unit.first < unit.span->queries; unit.first += AH_ATTENTION_QUERIES)
            KIND(attend_back)(a, &unit, &s, &written);
    KIND(clear_keys)(a, &s, written, group->span->room);
    KIND(close_sums)(a, group, &s);
}
