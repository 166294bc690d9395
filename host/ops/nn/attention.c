/* Attention: scaled_dot_product_attention as a composition of products and a softmax under a mask, or as one op that
 * does not store the scores; sequences of unequal lengths behind each other as the latter only. */
#include "ops/nn/attention.h"

#include <stdlib.h>
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/shape/shape.h"
#include "tensor/joined.h"
#include "tensor/owned.h"

/* Sequences behind each other. */

/* Read the offsets of the sequences of a side: (n + 1,) integers that rise from 0 to the number of rows, by at most
 * `longest` each. */
static int read_starts(struct ah_tensor **out, const char *name, struct ah_tensor *starts, int64_t rows,
                       int64_t longest)
{
    if (starts->ndim != 1 || starts->numel < 1 || (starts->dtype != AH_I32 && starts->dtype != AH_I64))
        return ah_fail(AH_EINVAL, "varlen_attn: expected %s int32 or int64 (n + 1,), got %s %s", name,
                       ah_dtype_name(starts->dtype), ah_shape(starts));
    AH_TRY(ah_host_copy(out, starts));
    int64_t before = ah_tensor_get_int(*out, 0), last = before;
    bool rises = before == 0;
    for (int64_t i = 1; i < (*out)->numel && rises; i++, before = last) {
        last = ah_tensor_get_int(*out, i);
        rises = last >= before;
        if (rises && last - before > longest)
            return ah_fail(AH_EINVAL, "varlen_attn: sequence %lld of %s has length %lld, expected at most %lld",
                           (long long)i - 1, name, (long long)(last - before), (long long)longest);
    }
    if (rises && last == rows)
        return 0;
    return ah_fail(AH_EINVAL, "varlen_attn: %s must rise from 0 to the number of rows, %lld", name, (long long)rows);
}

/* The used lengths of key sequences, each at most the whole one. */
static int read_used(struct ah_tensor **out, struct ah_tensor *used, const struct ah_tensor *starts)
{
    *out = NULL;
    if (!used)
        return 0;
    if (used->ndim != 1 || used->numel != starts->numel - 1 || (used->dtype != AH_I32 && used->dtype != AH_I64))
        return ah_fail(AH_EINVAL, "varlen_attn: expected seqused_k int32 or int64 (%lld,), got %s %s",
                       (long long)starts->numel - 1, ah_dtype_name(used->dtype), ah_shape(used));
    AH_TRY(ah_host_copy(out, used));
    for (int64_t i = 0; i < used->numel; i++) {
        int64_t room = ah_tensor_get_int(starts, i + 1) - ah_tensor_get_int(starts, i);
        if (ah_tensor_get_int(*out, i) < 0 || ah_tensor_get_int(*out, i) > room)
            return ah_fail(AH_EINVAL, "varlen_attn: seqused_k: sequence %lld has %lld keys, not %lld", (long long)i,
                           (long long)room, (long long)ah_tensor_get_int(*out, i));
    }
    return 0;
}

/* Of every sequence begin and count of queries, begin, count and room of keys; returns the dropout words of a head. */
static int64_t fill_spans(int64_t *span, const struct ah_tensor *queries, const struct ah_tensor *keys,
                          const struct ah_tensor *used)
{
    int64_t words = 0;
    for (int64_t i = 0; i + 1 < queries->numel; i++, span += 5) {
        span[0] = ah_tensor_get_int(queries, i);
        span[1] = ah_tensor_get_int(queries, i + 1) - span[0];
        span[2] = ah_tensor_get_int(keys, i);
        span[4] = ah_tensor_get_int(keys, i + 1) - span[2];
        span[3] = used ? ah_tensor_get_int(used, i) : span[4];
        words += ah_attention_blocks(span[1]) * span[3];
    }
    return words;
}

/* extra[0]: the spans, where the kernel is. */
static int make_spans(struct ah_call *c, const struct ah_args_attention *arg, int64_t *words)
{
    AH_OWNED struct ah_tensor *queries = NULL, *keys = NULL, *used = NULL, *spans = NULL;
    const int64_t *longest = arg->longest.ints.at;
    AH_TRY(read_starts(&queries, "cu_seq_q", arg->cu_seq_q.tensor, arg->query.tensor->size[0], longest[0]));
    AH_TRY(read_starts(&keys, "cu_seq_k", arg->cu_seq_k.tensor, arg->key.tensor->size[0], longest[1]));
    if (queries->numel != keys->numel)
        return ah_fail(AH_EINVAL, "varlen_attn: cu_seq_q has %lld sequences, cu_seq_k %lld",
                       (long long)queries->numel - 1, (long long)keys->numel - 1);
    AH_TRY(read_used(&used, ah_given(&arg->seqused_k), keys));
    const int64_t size[] = {queries->numel - 1, 5};
    AH_TRY(ah_tensor_empty(&spans, size, 2, AH_I64, &ah_cpu));
    *words = fill_spans(ah_tensor_data(spans), queries, keys, used) * arg->query.tensor->size[1];
    if (c->device == &ah_cpu) {
        c->extra[0] = ah_tensor_retain(spans);
        return 0;
    }
    AH_TRY(ah_tensor_empty(&c->extra[0], size, 2, AH_I64, c->device));
    return ah_device_copy(ah_tensor_data(c->extra[0]), c->device, ah_tensor_data(spans), &ah_cpu,
                          (size_t)spans->numel * sizeof(int64_t));
}

/* Does a mask broadcast to scores of this shape, and is it of their dtype or boolean? */
static int check_mask(const struct ah_tensor *mask, const struct ah_tensor *scores)
{
    const char *op = "scaled_dot_product_attention";
    int64_t size[AH_MAX_DIMS];
    int ndim;
    AH_TRY(ah_broadcast_shapes("scaled_dot_product_attention: attn_mask", scores, mask, size, &ndim));
    if (ndim != scores->ndim || memcmp(size, scores->size, (size_t)ndim * sizeof *size))
        return ah_fail(AH_EINVAL, "%s: attn_mask %s does not broadcast to the scores %s", op, ah_shape(mask),
                       ah_shape(scores));
    if (mask->dtype != AH_BOOL && mask->dtype != scores->dtype)
        return ah_fail(AH_EINVAL, "%s: expected attn_mask bool or %s, got %s", op, ah_dtype_name(scores->dtype),
                       ah_dtype_name(mask->dtype));
    return 0;
}

/* Do query, key and value go together? Their dims are [batch,] tokens, heads, width. */
static int check_rows(const struct ah_args_attention *arg)
{
    const struct ah_tensor *q = arg->query.tensor, *k = arg->key.tensor, *v = arg->value.tensor;
    int n = arg->cu_seq_q.tensor ? 3 : 4;
    bool fine = q->ndim == n && k->ndim == n && v->ndim == n && q->size[n - 1] == k->size[n - 1] &&
                k->size[n - 2] == v->size[n - 2] && k->size[n - 3] == v->size[n - 3];
    fine = fine && (n == 3 || (q->size[0] == k->size[0] && k->size[0] == v->size[0]));
    if (!fine)
        return ah_fail(AH_EINVAL, "varlen_attn: expected query (T, H, E), key (S, G, E) and value (S, G, V), got %s, "
                       "%s and %s", ah_shape(q), ah_shape(k), ah_shape(v));
    if (k->size[n - 2] == 0 ? q->size[n - 2] != 0 : q->size[n - 2] % k->size[n - 2] != 0)
        return ah_fail(AH_EINVAL, "varlen_attn: the heads of key and value divide the query's, got %s and %s",
                       ah_shape(k), ah_shape(q));
    if (!ah_dtype_is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
        return ah_fail(AH_EINVAL, "varlen_attn: expected a floating query, and key and value of its dtype, got %s, %s "
                       "and %s", ah_dtype_name(q->dtype), ah_dtype_name(k->dtype), ah_dtype_name(v->dtype));
    if (ah_given(&arg->mask)) {
        const struct ah_tensor scores = {.ndim = 4, .dtype = q->dtype,
                                         .size = {q->size[0], q->size[2], q->size[1], k->size[1]}};
        AH_TRY(check_mask(arg->mask.tensor, &scores));
    }
    double p = arg->dropout_p.number;
    if (!(p >= 0 && p < 1))
        return ah_fail(AH_EINVAL, "varlen_attn: expected dropout_p from 0 to below 1, got %g", p);
    return 0;
}

/* Is every sequence, as a row of the padded batch, made of rows of that row's own? */
static int check_padded(const struct ah_args_attention *arg)
{
    const struct ah_tensor *starts = arg->cu_seq_q.tensor, *at = arg->padded_at.tensor;
    int64_t tokens = arg->longest.ints.count > 2 ? arg->longest.ints.at[2] : 0;
    int64_t sequences = starts ? starts->numel - 1 : 0;
    if (tokens < 1 || starts != arg->cu_seq_k.tensor || ah_given(&arg->seqused_k) || !ah_on_cpu(starts))
        return ah_fail(AH_EINVAL, "attention: padded_at is for packed sequences on the CPU that see themselves");
    AH_TRY(ah_check_padded_rows("attention", at, arg->query.tensor->size[0], tokens * sequences));
    for (int64_t s = 0; s < sequences; s++)
        for (int64_t i = ah_tensor_get_int(starts, s); i < ah_tensor_get_int(starts, s + 1) && i < at->numel; i++)
            if (ah_tensor_get_int(at, i) / tokens != s)
                return ah_fail(AH_EINVAL, "attention: padded_at: row %lld is not of sequence %lld", (long long)i,
                               (long long)s);
    return 0;
}

int ah_forward_attention(struct ah_call *c)
{
    const struct ah_args_attention *arg = ah_args(c, attention);
    const struct ah_tensor *q = arg->query.tensor, *v = arg->value.tensor;
    int64_t size[4], words = 0;
    int n = q->ndim;
    AH_TRY(check_rows(arg));
    if (ah_given(&arg->padded_at))
        AH_TRY(check_padded(arg));
    if (arg->cu_seq_q.tensor)
        AH_TRY(make_spans(c, arg, &words));
    else
        words = ah_attention_blocks(q->size[1]) * arg->key.tensor->size[1] * q->size[0] * q->size[2];
    if (arg->dropout_p.number > 0)
        AH_TRY(ah_tensor_empty(&c->extra[1], &words, 1, AH_I64, c->device));
    memcpy(size, q->size, sizeof size);
    size[n - 1] = v->size[n - 1];
    AH_TRY(ah_call_output(c, 0, size, n, q->dtype));
    const int64_t lse[] = {q->size[n - 2], n == 3 ? q->size[0] : q->size[0] * q->size[1]};
    AH_TRY(ah_call_output(c, 1, lse, 2, ah_compute_dtype(q->dtype)));
    return ah_call_kernel(c);
}

/* If query, key and value are slices of one tensor, as a linear layer for all three returns them: find that tensor, the
 * order of the slices in it, and the dim that they divide. */
static int find_packed(struct ah_tensor **packed, struct ah_tensor *const *input, int *order, int *dim)
{
    struct ah_tensor *slice[3];
    for (int i = 0; i < 3; i++) {
        int k = i;
        for (; k > 0 && input[order[k - 1]]->offset > input[i]->offset; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < 3; i++)
        slice[i] = input[order[i]];
    *packed = NULL;
    for (*dim = slice[0]->ndim - 1; *dim >= 0; --*dim) {
        AH_TRY(ah_tensor_joined(packed, slice, 3, *dim));
        if (*packed)
            return 0;
    }
    return 0;
}

/* Gradients of slices of one tensor are allocated as the same slices of one gradient, which is then complete without a
 * copy (autograd/engine/parts.h). Allocates nothing where they are no such slices. */
static int make_packed_gradients(struct ah_call *c, struct ah_tensor *const *input)
{
    AH_OWNED struct ah_tensor *packed = NULL, *grad = NULL;
    int order[3], dim;
    int64_t start = 0;
    AH_TRY(find_packed(&packed, input, order, &dim));
    if (!packed)
        return 0;
    AH_TRY(ah_tensor_empty_ordered(&grad, packed, packed->dtype, c->device));
    for (int i = 0; i < 3 && grad->stride[grad->ndim - 1] == 1; i++) {
        const struct ah_tensor *t = input[order[i]];
        AH_TRY(ah_tensor_view(&c->out[order[i]], grad, t->size, grad->stride, t->ndim,
                              grad->offset + start * grad->stride[dim]));
        start += t->size[dim];
        c->out_count = 3;
    }
    return 0;
}

int ah_forward_attention_backward(struct ah_call *c)
{
    const struct ah_args_attention_backward *arg = ah_args(c, attention_backward);
    struct ah_tensor *const input[] = {arg->query.tensor, arg->key.tensor, arg->value.tensor};
    AH_TRY(make_packed_gradients(c, input));
    for (int i = 0; i < 3 && !c->out[i]; i++)
        AH_TRY(ah_call_output(c, i, input[i]->size, input[i]->ndim, input[i]->dtype));
    return ah_call_kernel(c);
}

AH_FORWARD_WITH(attention_keep, attention_keep,
                ah_call_single(c, arg->size.ints.at, arg->size.ints.count, arg->dtype.dtype))

/* Scores in memory. */

int ah_forward_masked_softmax(struct ah_call *c)
{
    const struct ah_args_masked_softmax *arg = ah_args(c, masked_softmax);
    const struct ah_tensor *x = arg->input.tensor, *mask = arg->mask.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim < 2)
        return ah_fail(AH_EINVAL, "masked_softmax: expected scores (..., L, S), got %s", ah_shape(x));
    if (mask)
        AH_TRY(check_mask(mask, x));
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}

/* Heads of key or value as many times as the query has of them. */
static int repeat_heads(struct ah_tensor **out, const struct ah_tensor *q, struct ah_tensor *t)
{
    int64_t times = q->size[q->ndim - 3] / t->size[t->ndim - 3];
    if (times == 1) {
        *out = ah_tensor_retain(t);
        return 0;
    }
    return ah_op1(AH_OP_repeat_interleave, out, AH_T(t), AH_I(times), AH_I(-3));
}

static double scale_of(const struct ah_value *scale, const struct ah_tensor *query)
{
    return scale->kind == AH_NONE ? 1 / __builtin_sqrt((double)query->size[query->ndim - 1]) : scale->number;
}

/* Convert fp16 and bf16 to float32, so that scores and weights are not rounded to it. */
static int attention_widened(struct ah_tensor **out, const struct ah_value *value)
{
    struct ah_tensor *tensor = ah_given(value);
    *out = NULL;
    if (!tensor)
        return 0;
    if (!ah_dtype_is_float(tensor->dtype) || ah_compute_dtype(tensor->dtype) == tensor->dtype) {
        *out = ah_tensor_retain(tensor);
        return 0;
    }
    return ah_op1(AH_OP_to, out, *value, AH_D(ah_compute_dtype(tensor->dtype)));
}

/* Query, key, value and mask as the products want them: widened, the heads of key and value repeated. */
static int attention_factors(struct ah_tensor **made, const struct ah_args_attention_by_ops *arg)
{
    const struct ah_value *given[] = {&arg->query, &arg->key, &arg->value, &arg->attn_mask};
    for (int i = 0; i < 4; i++)
        AH_TRY(attention_widened(&made[i], given[i]));
    for (int i = 1; i < 3 && arg->enable_gqa.flag; i++) {
        struct ah_tensor *few = made[i];
        int status = repeat_heads(&made[i], made[0], few);
        ah_tensor_release(few);
        if (status < 0) {
            made[i] = NULL;
            return status;
        }
    }
    return 0;
}

/* Scores of fewer bytes are not cut, and of those that are a chunk's are at most a quarter of the free memory. */
enum { LEAST_CUT = 4 << 20, LARGEST_CHUNK = 1 << 30 };

int64_t ah_attention_rows(struct ah_device *device, int64_t each, int64_t queries)
{
    size_t available, total, pinned;
    if (!device->type->memory_info || each * queries <= LEAST_CUT ||
        device->type->memory_info(device, &available, &total, &pinned) < 0)
        return queries;
    int64_t room = (int64_t)(available / 4);
    room = room < LEAST_CUT ? LEAST_CUT : room > LARGEST_CHUNK ? LARGEST_CHUNK : room;
    int64_t rows = room / each > 1 ? room / each : 1;
    return rows < queries ? rows : queries;
}

/* The queries whose scores a device has in memory at a time; 0: all. Only without gradients, which need all weights,
 * and without a causal mask and dropout, which depend on a query's place. */
static int64_t attention_chunk(const struct ah_call *c, const struct ah_args_attention_by_ops *arg)
{
    const struct ah_tensor *q = arg->query.tensor, *k = arg->key.tensor;
    if (arg->is_causal.flag || arg->dropout_p.number > 0 || q->numel == 0 ||
        (ah_recorder && ah_recorder->wanted(c)))
        return 0;
    int64_t queries = q->size[q->ndim - 2], heads = q->numel / (queries * q->size[q->ndim - 1]);
    int64_t each = 2 * heads * k->size[k->ndim - 2] * (int64_t)ah_dtype_size(ah_compute_dtype(q->dtype));
    int64_t rows = ah_attention_rows(q->storage->device, each, queries);
    return rows < queries ? rows : 0;
}

/* The result for `count` queries from `first` on. */
static int attention_part(const struct ah_args_attention_by_ops *arg, int64_t first, int64_t count,
                          struct ah_tensor **out)
{
    struct ah_tensor *mask = ah_given(&arg->attn_mask);
    AH_OWNED struct ah_tensor *query = NULL, *own = NULL;
    int64_t queries = arg->query.tensor->size[arg->query.tensor->ndim - 2];
    AH_TRY(ah_op1(AH_OP_narrow, &query, arg->query, AH_I(-2), AH_I(first), AH_I(count)));
    if (mask && mask->ndim >= 2 && mask->size[mask->ndim - 2] == queries)
        AH_TRY(ah_op1(AH_OP_narrow, &own, arg->attn_mask, AH_I(-2), AH_I(first), AH_I(count)));
    return ah_op1(AH_OP_attention_by_ops, out, AH_T(query), arg->key, arg->value, AH_T(own ? own : mask),
                  arg->dropout_p, arg->is_causal, arg->scale, arg->enable_gqa);
}

static int attention_in_chunks(struct ah_call *c, const struct ah_args_attention_by_ops *arg, int64_t rows)
{
    int64_t queries = arg->query.tensor->size[arg->query.tensor->ndim - 2];
    int count = (int)((queries + rows - 1) / rows), made = 0, status = 0;
    struct ah_tensor **part = calloc((size_t)count, sizeof(struct ah_tensor *));
    AH_TRY_MEMORY(part, "out of memory");
    for (; made < count && status == 0; made += status == 0) {
        int64_t first = made * rows;
        status = attention_part(arg, first, queries - first < rows ? queries - first : rows, &part[made]);
    }
    if (status == 0)
        status = ah_op1(AH_OP_cat, &c->out[0], AH_L(part, count), AH_I(-2));
    c->out_count = status == 0;
    while (made > 0)
        ah_tensor_release(part[--made]);
    free(part);
    return status;
}

/* The scale goes to the query, which is the smaller factor. */
int ah_forward_attention_by_ops(struct ah_call *c)
{
    enum { QUERY, KEY, VALUE, MASK, SCALED, TURNED, SCORES, WEIGHTS, DROPPED, OUTPUT, MADE };
    const struct ah_args_attention_by_ops *arg = ah_args(c, attention_by_ops);
    const struct ah_tensor *q = arg->query.tensor;
    double p = arg->dropout_p.number;
    AH_OWNED_LIST(made, MADE);
    struct ah_tensor *weights;
    int64_t chunk = attention_chunk(c, arg);
    if (chunk)
        return attention_in_chunks(c, arg, chunk);
    AH_TRY(attention_factors(made, arg));
    AH_TRY(ah_op1(AH_OP_mul, &made[SCALED], AH_T(made[QUERY]), AH_N(scale_of(&arg->scale, q))));
    AH_TRY(ah_op1(AH_OP_transpose, &made[TURNED], AH_T(made[KEY]), AH_I(-2), AH_I(-1)));
    AH_TRY(ah_op1(AH_OP_matmul, &made[SCORES], AH_T(made[SCALED]), AH_T(made[TURNED])));
    AH_TRY(ah_op1(AH_OP_masked_softmax, &made[WEIGHTS], AH_T(made[SCORES]), AH_T(made[MASK]), arg->is_causal));
    weights = made[WEIGHTS];
    if (p > 0) {
        AH_TRY(ah_op1(AH_OP_dropout, &made[DROPPED], AH_T(weights), AH_N(p), AH_B(true)));
        weights = made[DROPPED];
    }
    AH_TRY(ah_op1(AH_OP_matmul, &made[OUTPUT], AH_T(weights), AH_T(made[VALUE])));
    if (made[OUTPUT]->dtype == q->dtype)
        c->out[0] = ah_tensor_retain(made[OUTPUT]);
    else
        AH_TRY(ah_op1(AH_OP_to, &c->out[0], AH_T(made[OUTPUT]), AH_D(q->dtype)));
    c->out_count = 1;
    return 0;
}

/* The choice between the two. */

static int check_attention(const struct ah_args_scaled_dot_product_attention *arg)
{
    const char *op = "scaled_dot_product_attention";
    const struct ah_tensor *q = arg->query.tensor, *k = arg->key.tensor, *v = arg->value.tensor;
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2 || q->size[q->ndim - 1] != k->size[k->ndim - 1] ||
        k->size[k->ndim - 2] != v->size[v->ndim - 2])
        return ah_fail(AH_EINVAL, "%s: expected query (..., L, E), key (..., S, E) and value (..., S, V), got %s, %s "
                       "and %s", op, ah_shape(q), ah_shape(k), ah_shape(v));
    if (!ah_dtype_is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
        return ah_fail(AH_EINVAL, "%s: expected a floating query, and key and value of its dtype, got %s, %s and %s",
                       op, ah_dtype_name(q->dtype), ah_dtype_name(k->dtype), ah_dtype_name(v->dtype));
    if (arg->is_causal.flag && arg->attn_mask.tensor)
        return ah_fail(AH_EINVAL, "%s: attn_mask and is_causal exclude each other", op);
    for (int i = 1; i < 3 && arg->enable_gqa.flag; i++) {
        const struct ah_tensor *t = i == 1 ? k : v;
        if (q->ndim < 3 || t->ndim < 3 || t->size[t->ndim - 3] < 1 || q->size[q->ndim - 3] % t->size[t->ndim - 3])
            return ah_fail(AH_EINVAL, "%s: with enable_gqa the heads of key and value divide the query's, got %s and "
                           "%s", op, ah_shape(t), ah_shape(q));
    }
    return 0;
}

/* Can the one op compute it? */
static bool without_scores(const struct ah_args_scaled_dot_product_attention *arg)
{
    const struct ah_tensor *q = arg->query.tensor, *k = arg->key.tensor, *v = arg->value.tensor;
    int n = q->ndim, heads = n - 3;
    if (n < 3 || n > 4 || k->ndim != n || v->ndim != n || arg->dropout_p.number >= 1 || arg->dropout_p.number < 0)
        return false;
    if (n == 4 && (q->size[0] != k->size[0] || q->size[0] != v->size[0]))
        return false;
    if (k->size[heads] != v->size[heads] || (q->size[heads] != k->size[heads] && !arg->enable_gqa.flag))
        return false;
    return q->dtype != ah_compute_dtype(q->dtype) || n == 4;
}

/* (1, H, L, E) of (H, L, E), for the op that wants a batch. */
static int with_batch(struct ah_tensor **out, const struct ah_value *value)
{
    if (value->tensor->ndim == 3)
        return ah_op1(AH_OP_unsqueeze, out, *value, AH_I(0));
    *out = ah_tensor_retain(value->tensor);
    return 0;
}

/* The one op has heads behind tokens. */
static int attention_run(struct ah_call *c, const struct ah_args_scaled_dot_product_attention *arg)
{
    enum { BATCHED, TURNED = 3, RESULT = 6, MADE };
    const struct ah_value heads_first[] = {arg->query, arg->key, arg->value};
    const struct ah_tensor *q = arg->query.tensor;
    const int64_t all[] = {-1, -1}, causal[] = {-1, 0};
    AH_OWNED_LIST(made, MADE);
    AH_OWNED_LIST(result, 2);
    int count = 0;
    for (int i = 0; i < 3; i++) {
        AH_TRY(with_batch(&made[BATCHED + i], &heads_first[i]));
        AH_TRY(ah_op1(AH_OP_transpose, &made[TURNED + i], AH_T(made[BATCHED + i]), AH_I(1), AH_I(2)));
    }
    const struct ah_value args[] = {
        AH_T(made[TURNED]), AH_T(made[TURNED + 1]), AH_T(made[TURNED + 2]), arg->attn_mask, AH_NIL, AH_NIL, AH_NIL,
        AH_NIL, AH_NIL, AH_INTS_OF(arg->is_causal.flag ? causal : all, 2), AH_N(scale_of(&arg->scale, q)),
        arg->dropout_p,
    };
    AH_TRY(ah_op_call(AH_OP_attention, args, 12, false, result, &count));
    AH_TRY(ah_op1(AH_OP_transpose, &made[RESULT], AH_T(result[0]), AH_I(1), AH_I(2)));
    if (q->ndim == 3)
        AH_TRY(ah_op1(AH_OP_squeeze, &c->out[0], AH_T(made[RESULT]), AH_I(0)));
    else
        c->out[0] = ah_tensor_retain(made[RESULT]);
    c->out_count = 1;
    return 0;
}

int ah_forward_scaled_dot_product_attention(struct ah_call *c)
{
    const struct ah_args_scaled_dot_product_attention *arg = ah_args(c, scaled_dot_product_attention);
    AH_TRY(check_attention(arg));
    int status = without_scores(arg) ? attention_run(c, arg) : AH_ENOTIMPL;
    if (status != AH_ENOTIMPL) /* a device also returns it for heads wider than its kernel supports */
        return status;
    AH_TRY(ah_op_call1(AH_OP_attention_by_ops, &c->out[0], c->arg, c->op->param_count));
    c->out_count = 1;
    return 0;
}
