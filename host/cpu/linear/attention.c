/* Attention without its matrix of scores: blocks of queries, blocks of keys, products in registers. Forward, threads
 * divide blocks of queries; backward, heads of keys, so results do not depend on their number. Operands that the loops
 * cannot read in place (fp16, bf16 on a processor without products of pairs, strided items, head sizes that are no
 * multiple of a vector) are copied first. */
#include "cpu/linear/attention.h"

#include <stdlib.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/draws.h"
#include "cpu/loop/lanes.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"
#include "tensor/rng.h"

/* The dtype of the rows of a call on tensors of `dtype`. */
static enum ah_dtype attention_dtype(enum ah_dtype dtype)
{
    bool pairs = dtype == AH_BF16 && ah_attention_kinds[AH_BF16].forward && ah_bf16_pairs();
    return pairs ? AH_BF16 : ah_compute_dtype(dtype);
}

/* The spans of a call: of (n, 5) integers begin and count of queries, begin, count and room of keys; else the batch. */
static int make_spans(struct ah_attention *plan, const struct ah_tensor *query, const struct ah_tensor *key,
                      const struct ah_tensor *spans)
{
    int64_t row = 0, words = 0;
    plan->spans = spans ? spans->size[0] : query->size[0];
    plan->span = calloc((size_t)plan->spans + 1, sizeof *plan->span);
    AH_TRY_MEMORY(plan->span, "attention: out of memory");
    for (int64_t s = 0; s < plan->spans; s++) {
        struct ah_attention_span *span = &plan->span[s];
        const int64_t *at = spans ? (const int64_t *)ah_tensor_data(spans) + 5 * s : NULL;
        if (at)
            *span = (struct ah_attention_span){.query = at[0], .queries = at[1], .key = at[2], .keys = at[3],
                                               .room = at[4], .diagonal = at[3] - at[1]};
        else
            *span = (struct ah_attention_span){.queries = query->size[1], .keys = key->size[1], .room = key->size[1]};
        span->number = s;
        span->row = row;
        span->words = words;
        row += span->queries;
        words += ah_attention_blocks(span->queries) * span->keys * plan->heads;
    }
    plan->rows = row;
    plan->words = words;
    return 0;
}

/* The units of work: blocks of queries, or (whole) all queries of a head of keys. */
static int make_units(struct ah_attention_unit **units, int64_t *count, const struct ah_attention *plan, bool whole)
{
    int64_t blocks = 0, step = whole ? plan->group : 1;
    for (int64_t s = 0; s < plan->spans; s++)
        blocks += ah_attention_blocks(plan->span[s].queries) + whole;
    struct ah_attention_unit *unit = malloc((size_t)(blocks * plan->heads + 1) * sizeof *unit);
    AH_TRY_MEMORY(unit, "attention: out of memory");
    *units = unit;
    for (int64_t s = 0; s < plan->spans; s++) {
        int64_t end = whole ? 1 : plan->span[s].queries;
        for (int64_t head = 0; head < plan->heads; head += step)
            for (int64_t first = 0; first < end; first += AH_ATTENTION_QUERIES)
                *unit++ = (struct ah_attention_unit){&plan->span[s], head, first};
    }
    *count = unit - *units;
    return 0;
}

/* One tensor of a call, with the copies that have it as rows. */
struct array {
    struct ah_dense dense, padded;
    struct ah_dense_out result;
    struct ah_tensor *strided, *own; /* a result with gaps, and the tensor without that is copied into it */
};

static int64_t whole_vectors(int64_t width, enum ah_dtype dtype)
{
    int64_t lanes = AH_LANES_BYTES / (int64_t)ah_dtype_size(ah_compute_dtype(dtype));
    if (dtype == AH_BF16 && lanes < 8) /* four pairs are transposed at once */
        lanes = 8;
    return (width + lanes - 1) / lanes * lanes;
}

/* The strides of row-major memory with rows of `width`. */
static void row_major_strides(struct ah_attention_rows *rows, const struct ah_tensor *t, int64_t width)
{
    rows->head = width;
    rows->token = width * t->size[t->ndim - 2];
    rows->batch = t->ndim == 4 ? rows->token * t->size[1] : 0;
    rows->width = t->size[t->ndim - 1];
}

/* Copy `count` rows between widths; the surplus of a wider one becomes zeros. */
static void copy_rows(char *to, size_t to_bytes, const char *from, size_t from_bytes, int64_t count)
{
    size_t bytes = to_bytes < from_bytes ? to_bytes : from_bytes;
    for (int64_t i = 0; i < count; i++, to += to_bytes, from += from_bytes) {
        memcpy(to, from, bytes);
        memset(to + bytes, 0, to_bytes - bytes);
    }
}

/* Can rows of `whole` items of `dtype` be those of the tensor itself? */
static bool are_rows(const struct ah_tensor *t, enum ah_dtype dtype, int64_t whole)
{
    return t->dtype == dtype && whole == t->size[t->ndim - 1] && t->stride[t->ndim - 1] == 1;
}

static void rows_of(struct ah_attention_rows *rows, struct ah_tensor *t)
{
    int n = t->ndim;
    *rows = (struct ah_attention_rows){ah_tensor_data(t), n == 4 ? t->stride[0] : 0, t->stride[n - 3],
                                       t->stride[n - 2], t->size[n - 1]};
}

static int open_rows(struct array *a, struct ah_attention_rows *rows, struct ah_tensor *t, enum ah_dtype dtype)
{
    int64_t width = t->size[t->ndim - 1], whole = whole_vectors(width, dtype);
    size_t item = ah_dtype_size(dtype);
    if (are_rows(t, dtype, whole)) {
        AH_TRY(ah_tensor_row_major(t));
        rows_of(rows, t);
        return 0;
    }
    AH_TRY(t->dtype == dtype ? ah_dense_open_as_is(&a->dense, t) : ah_dense_open(&a->dense, t));
    row_major_strides(rows, t, whole);
    rows->data = (void *)a->dense.data;
    if (whole == width || t->numel == 0)
        return 0;
    int64_t count = t->numel / width;
    AH_TRY(ah_dense_scratch(&a->padded, (size_t)(count * whole) * item));
    copy_rows(a->padded.block, (size_t)whole * item, a->dense.data, (size_t)width * item, count);
    rows->data = a->padded.block;
    return 0;
}

/* Rows to be written; whole vectors where `padded`, else the caller's items. */
static int open_result(struct array *a, struct ah_attention_rows *rows, struct ah_tensor *t, enum ah_dtype dtype,
                       bool padded)
{
    int64_t width = t->size[t->ndim - 1], whole = padded ? whole_vectors(width, dtype) : width;
    if (!are_rows(t, dtype, whole) && !ah_tensor_is_contiguous(t)) {
        AH_TRY(ah_tensor_empty_like(&a->own, t));
        a->strided = t;
        t = a->own;
    }
    if (are_rows(t, dtype, whole)) {
        rows_of(rows, t);
        return 0;
    }
    AH_TRY(ah_dense_out_open(&a->result, t));
    row_major_strides(rows, t, whole);
    rows->data = a->result.data;
    if (whole == width || t->numel == 0)
        return 0;
    AH_TRY(ah_dense_scratch(&a->padded, (size_t)(t->numel / width * whole) * ah_dtype_size(dtype)));
    rows->data = a->padded.block;
    return 0;
}

static void close_array(struct array *a)
{
    struct ah_tensor *t = a->result.out;
    if (t && a->padded.block && a->result.data) {
        enum ah_dtype dtype = ah_compute_dtype(t->dtype);
        size_t item = ah_dtype_size(dtype);
        int64_t width = t->size[t->ndim - 1];
        copy_rows(a->result.data, (size_t)width * item, a->padded.block, (size_t)whole_vectors(width, dtype) * item,
                  t->numel / width);
    }
    ah_dense_close(&a->padded);
    ah_dense_close(&a->dense);
    ah_dense_out_close(&a->result);
    if (a->strided)
        ah_strided_copy(ah_tensor_data(a->strided), a->strided->stride, ah_tensor_data(a->own), a->own->stride,
                        a->own->size, a->own->ndim, ah_dtype_size(a->own->dtype));
    ah_tensor_release(a->own);
}

/* All units, each by one thread, which has its own scratch block. */
struct units {
    const struct ah_attention *plan;
    const struct ah_attention_unit *unit;
    ah_attention_work run;
    char *scratch;
    size_t scratch_bytes; /* of each thread */
};

static void run_unit_range(void *context, int64_t begin, int64_t end)
{
    const struct units *units = context;
    for (int64_t i = begin; i < end; i++)
        units->run(units->plan, &units->unit[i], units->scratch + (size_t)ah_thread_index() * units->scratch_bytes);
}

static int run_units(const struct ah_attention *plan, bool whole)
{
    const struct ah_attention_kind *kind = &ah_attention_kinds[plan->dtype];
    struct ah_attention_unit *unit = NULL;
    struct ah_dense scratch = {0};
    int64_t count = 0, work = 0;
    int status, threads = ah_num_threads();
    AH_TRY(make_units(&unit, &count, plan, whole));
    for (int64_t s = 0; s < plan->spans; s++)
        work += plan->span[s].queries * plan->span[s].keys * plan->heads;
    if (!ah_worth_threads(work, AH_SHARE_HEAVY) || count < 2)
        threads = 1;
    size_t scratch_bytes = (kind->scratch_bytes(plan) + 4095) / 4096 * 4096 + 64;
    AH_TRYGO(ah_dense_scratch(&scratch, scratch_bytes * (size_t)threads), out);
    struct units units = {plan, unit, whole ? kind->backward : kind->forward, scratch.block, scratch_bytes};
    ah_parallel_for(count, threads > 1 ? 1 : count, run_unit_range, &units);
out:
    ah_dense_close(&scratch);
    free(unit);
    return status;
}

/* The inputs of both forward and backward. */
struct reading {
    struct array query, key, value, mask;
};

static int64_t window_side(const struct ah_value *window, int side)
{
    return window->ints.count == 2 ? window->ints.at[side] : -1;
}

/* The mask stretched to (batch, heads, queries, keys). */
static int open_mask(struct reading *r, struct ah_attention *plan, struct ah_tensor *mask,
                     const struct ah_tensor *query, const struct ah_tensor *key)
{
    if (!mask)
        return 0;
    struct ah_tensor plain = *mask;
    const int64_t size[] = {query->size[0], query->size[2], query->size[1], key->size[1]};
    int64_t stride[4];
    if (ah_compute_dtype(mask->dtype) != mask->dtype && mask->dtype != AH_BOOL) {
        AH_TRY(ah_dense_open(&r->mask.dense, mask));
        plan->mask = r->mask.dense.data;
        ah_contiguous_strides(plain.size, plain.ndim, plain.stride);
    } else {
        AH_TRY(ah_tensor_row_major(mask));
        plan->mask = ah_tensor_data(mask);
    }
    ah_broadcast_strides(&plain, size, 4, stride);
    plan->boolean = mask->dtype == AH_BOOL;
    plan->mask_batch = stride[0];
    plan->mask_head = stride[1];
    plan->mask_query = stride[2];
    plan->mask_key = stride[3];
    return 0;
}

static int open_reading(struct reading *r, struct ah_attention *plan, struct ah_tensor *query, struct ah_tensor *key,
                        struct ah_tensor *value, struct ah_tensor *mask)
{
    int n = query->ndim;
    enum ah_dtype dtype = plan->dtype = attention_dtype(query->dtype);
    plan->heads = query->size[n - 2];
    plan->group = key->size[n - 2] ? plan->heads / key->size[n - 2] : 1;
    plan->width = whole_vectors(query->size[n - 1], dtype);
    plan->value_width = whole_vectors(value->size[n - 1], dtype);
    AH_TRY(open_rows(&r->query, &plan->query, query, dtype));
    AH_TRY(open_rows(&r->key, &plan->key, key, dtype));
    AH_TRY(open_rows(&r->value, &plan->value, value, dtype));
    return open_mask(r, plan, mask, query, key);
}

static void close_reading(struct reading *r, struct ah_attention *plan)
{
    close_array(&r->mask);
    close_array(&r->value);
    close_array(&r->key);
    close_array(&r->query);
    free(plan->span);
}

/* The draws of dropout: as for a matrix of weights for each head, row by row. With `at` it is that of a padded sequence
 * of `tokens`, of which query and key i are rows at[i]. A unit is a head of a sequence. */
struct drawing {
    const struct ah_attention *plan;
    uint64_t *words;
    uint8_t *rows; /* for each thread one of `most` bytes */
    int64_t most;
    double keep; /* probability */
    const int64_t *at;
    int64_t tokens;
};

static int64_t drawing_before(const void *context, int64_t unit)
{
    const struct drawing *d = context;
    int64_t draws = 0, heads = d->plan->heads;
    if (d->at)
        return 2 * d->tokens * d->tokens * unit;
    for (const struct ah_attention_span *span = d->plan->span; unit > 0; span++, unit -= heads)
        draws += 2 * span->queries * span->keys * (unit < heads ? unit : heads);
    return draws;
}

/* The decisions of one head of a sequence, into its words. */
static void draw_head(const struct drawing *d, struct ah_generator *g, const struct ah_attention_span *span,
                      uint64_t *words)
{
    const int64_t *at = d->at ? d->at + span->query : NULL;
    int64_t keys = span->keys, first = span->number * d->tokens, row = first;
    uint8_t *stays = d->rows + ah_thread_index() * d->most;
    for (int64_t i = 0; i < span->queries; i++) {
        int bit = (int)(i % AH_ATTENTION_QUERIES);
        if (bit == 0)
            memset(words, 0, (size_t)keys * sizeof *words);
        if (at) {
            ah_generator_skip(g, 2 * d->tokens * (at[i] - row));
            row = at[i] + 1;
        }
        ah_generator_fill_keep(g, stays, at ? d->tokens : keys, d->keep);
        for (int64_t j = 0; j < keys; j++)
            words[j] |= (uint64_t)stays[at ? at[j] - first : j] << bit;
        if (bit == AH_ATTENTION_QUERIES - 1)
            words += keys;
    }
    if (at)
        ah_generator_skip(g, 2 * d->tokens * (first + d->tokens - row));
}

static void draw_heads(const void *context, struct ah_generator *g, int64_t begin, int64_t end)
{
    const struct drawing *d = context;
    for (int64_t unit = begin; unit < end; unit++) {
        const struct ah_attention_span *span = &d->plan->span[unit / d->plan->heads];
        int64_t words = ah_attention_blocks(span->queries) * span->keys * (unit % d->plan->heads);
        draw_head(d, g, span, d->words + span->words + words);
    }
}

static int draw_keep(const struct ah_attention *plan, const struct ah_args_attention *arg, uint64_t *words)
{
    struct drawing drawing = {.plan = plan, .words = words, .keep = 1 - arg->dropout_p.number};
    if (ah_given(&arg->padded_at)) {
        drawing.at = ah_tensor_data(arg->padded_at.tensor);
        drawing.tokens = arg->longest.ints.at[2];
    }
    drawing.most = drawing.tokens;
    for (int64_t s = 0; s < plan->spans; s++)
        drawing.most = plan->span[s].keys > drawing.most ? plan->span[s].keys : drawing.most;
    AH_CLEANUP(ah_dense_close) struct ah_dense rows = {0};
    AH_TRY(ah_dense_scratch(&rows, (size_t)(drawing.most * ah_num_threads())));
    drawing.rows = rows.block;
    ah_draw_units(plan->spans * plan->heads, drawing_before, draw_heads, &drawing);
    return 0;
}

int ah_cpu_attention(struct ah_call *c)
{
    const struct ah_args_attention *arg = ah_args(c, attention);
    struct ah_tensor *query = arg->query.tensor;
    double p = arg->dropout_p.number;
    struct ah_attention plan = {.scale = arg->scale.number, .left = window_side(&arg->window, 0),
                                .right = window_side(&arg->window, 1), .keep_scale = 1 / (1 - p)};
    struct reading reading = {0};
    struct array out = {0};
    int status;
    AH_TRYGO(open_reading(&reading, &plan, query, arg->key.tensor, arg->value.tensor, ah_given(&arg->mask)), out);
    AH_TRYGO(make_spans(&plan, query, arg->key.tensor, c->extra[0]), out);
    AH_TRYGO(open_result(&out, &plan.out, c->out[0], plan.dtype, false), out);
    plan.lse = ah_tensor_data(c->out[1]);
    if (p > 0) {
        plan.keep = ah_tensor_data(c->extra[1]);
        AH_TRYGO(draw_keep(&plan, arg, ah_tensor_data(c->extra[1])), out);
    }
    status = run_units(&plan, false);
out:
    close_array(&out);
    close_reading(&reading, &plan);
    return status;
}

int ah_cpu_attention_backward(struct ah_call *c)
{
    const struct ah_args_attention_backward *arg = ah_args(c, attention_backward);
    struct ah_tensor *query = arg->query.tensor;
    double p = arg->dropout_p.number;
    struct ah_attention plan = {.scale = arg->scale.number, .left = window_side(&arg->window, 0),
                                .right = window_side(&arg->window, 1), .keep_scale = 1 / (1 - p)};
    struct reading reading = {0};
    struct array out = {0}, grad = {0}, result[3];
    memset(result, 0, sizeof result);
    struct ah_attention_rows *rows[] = {&plan.grad_query, &plan.grad_key, &plan.grad_value};
    int status;
    AH_TRYGO(open_reading(&reading, &plan, query, arg->key.tensor, arg->value.tensor, ah_given(&arg->mask)), out);
    AH_TRYGO(make_spans(&plan, query, arg->key.tensor, ah_given(&arg->spans)), out);
    AH_TRYGO(open_rows(&out, &plan.out, arg->output.tensor, plan.dtype), out);
    AH_TRYGO(open_rows(&grad, &plan.grad, arg->grad.tensor, plan.dtype), out);
    for (int i = 0; i < 3; i++)
        AH_TRYGO(open_result(&result[i], rows[i], c->out[i], plan.dtype, i > 0 && plan.dtype != AH_BF16), out);
    plan.lse = ah_tensor_data(arg->lse.tensor);
    if (ah_given(&arg->keep))
        plan.keep = ah_tensor_data(arg->keep.tensor);
    status = run_units(&plan, true);
out:
    for (int i = 0; i < 3; i++)
        close_array(&result[i]);
    close_array(&grad);
    close_array(&out);
    close_reading(&reading, &plan);
    return status;
}

int ah_cpu_attention_keep(struct ah_call *c)
{
    const struct ah_args_attention_keep *arg = ah_args(c, attention_keep);
    struct ah_tensor *out = c->out[0];
    const uint64_t *words = ah_tensor_data(arg->keep.tensor);
    int64_t queries = out->size[out->ndim - 2], keys = out->size[out->ndim - 1];
    double kept = 1 / (1 - arg->p.number);
    for (int64_t at = 0; at < out->numel; at += queries * keys) {
        for (int64_t i = 0; i < queries; i++) {
            const uint64_t *word = words + i / AH_ATTENTION_QUERIES * keys;
            for (int64_t j = 0; j < keys; j++)
                ah_tensor_set(out, at + i * keys + j, word[j] >> i % AH_ATTENTION_QUERIES & 1 ? kept : 0);
        }
        words += ah_attention_blocks(queries) * keys;
    }
    return 0;
}
