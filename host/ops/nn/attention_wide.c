/* Attention by heads that are wider than a device's kernels: products and a softmax of some queries at a time, so that
 * no more than a chunk of the scores is in memory, forward and backward. The backward computes the weights again. */
#include "ops/nn/attention.h"

#include <string.h>

#include "base/status/status.h"
#include "ops/dispatch/op.h"
#include "tensor/owned.h"

/* The operands, heads before tokens, widened, and without history. */
struct wide {
    struct ah_tensor *query, *key, *value, *mask; /* owned but for the mask */
    int64_t queries, rows;                        /* rows: queries at a time */
    double scale;
    bool causal;
};

static void wide_close(struct wide *w)
{
    ah_tensor_release(w->query);
    ah_tensor_release(w->key);
    ah_tensor_release(w->value);
}

/* (B, H, L, E) of (B, L, H, E): a view without history. */
static int wide_heads(struct ah_tensor **out, const struct ah_tensor *t)
{
    return ah_tensor_view(out, t, (int64_t[]){t->size[0], t->size[2], t->size[1], t->size[3]},
                          (int64_t[]){t->stride[0], t->stride[2], t->stride[1], t->stride[3]}, 4, t->offset);
}

/* That as the products want it: widened, its heads repeated to `heads`. */
static int wide_operand(struct ah_tensor **out, const struct ah_tensor *t, int64_t heads)
{
    AH_OWNED struct ah_tensor *view = NULL, *wide = NULL;
    AH_TRY(wide_heads(&view, t));
    AH_TRY(ah_op1(AH_OP_to, &wide, AH_T(view), AH_D(ah_compute_dtype(t->dtype))));
    if (t->size[2] == heads)
        *out = ah_tensor_retain(wide);
    else
        AH_TRY(ah_op1(AH_OP_repeat_interleave, out, AH_T(wide), AH_I(heads / t->size[2]), AH_I(1)));
    return 0;
}

/* AH_ENOTIMPL for dropout, packed sequences and windows other than a causal mask. `copies`: tensors of the size of the
 * scores that are in memory at once. */
static int wide_open(struct wide *w, const struct ah_tensor *query, const struct ah_tensor *key,
                     const struct ah_tensor *value, struct ah_tensor *mask, const struct ah_value *window, double scale,
                     double p, int copies)
{
    const int64_t *side = window->ints.at;
    bool plain = window->ints.count == 2 && side[0] == -1 && (side[1] == -1 || side[1] == 0);
    if (query->ndim != 4 || p > 0 || !plain || query->numel == 0 || key->numel == 0 || value->numel == 0)
        return AH_ENOTIMPL;
    int64_t heads = query->size[2];
    *w = (struct wide){.mask = mask, .queries = query->size[1], .scale = scale, .causal = side[1] == 0};
    AH_TRY(wide_operand(&w->query, query, heads));
    AH_TRY(wide_operand(&w->key, key, heads));
    AH_TRY(wide_operand(&w->value, value, heads));
    int64_t each = copies * query->size[0] * heads * key->size[1] * (int64_t)ah_dtype_size(w->query->dtype);
    w->rows = ah_attention_rows(query->storage->device, each, w->queries);
    return 0;
}

/* The part of the mask for queries from `first` on; NULL: none. */
static int wide_mask(struct ah_tensor **out, const struct wide *w, int64_t first, int64_t count)
{
    enum { KEYS, ROWS, COLUMN, MADE };
    AH_OWNED_LIST(made, MADE);
    struct ah_tensor *mask = w->mask;
    const struct ah_value device = AH_DEV(w->query->storage->device);
    if (w->causal) {
        AH_TRY(ah_op1(AH_OP_arange, &made[KEYS], AH_N(0), AH_N((double)w->key->size[2]), AH_N(1), AH_D(AH_I64),
                      device));
        AH_TRY(ah_op1(AH_OP_arange, &made[ROWS], AH_N((double)first), AH_N((double)(first + count)), AH_N(1),
                      AH_D(AH_I64), device));
        AH_TRY(ah_op1(AH_OP_unsqueeze, &made[COLUMN], AH_T(made[ROWS]), AH_I(1)));
        return ah_op1(AH_OP_le, out, AH_T(made[KEYS]), AH_T(made[COLUMN]));
    } else if (mask) {
        AH_OWNED struct ah_tensor *plain = NULL;
        AH_TRY(ah_tensor_view(&plain, mask, mask->size, mask->stride, mask->ndim, mask->offset));
        bool has_queries = mask->ndim >= 2 && mask->size[mask->ndim - 2] == w->queries && w->queries > 1;
        if (has_queries)
            AH_TRY(ah_op1(AH_OP_narrow, &made[ROWS], AH_T(plain), AH_I(-2), AH_I(first), AH_I(count)));
        if (mask->dtype != AH_BOOL)
            return ah_op1(AH_OP_to, out, AH_T(has_queries ? made[ROWS] : plain), AH_D(w->query->dtype));
        *out = ah_tensor_retain(has_queries ? made[ROWS] : plain);
    }
    return 0;
}

/* The scaled queries from `first` on and their weights. */
static int wide_weights(const struct wide *w, int64_t first, int64_t count, struct ah_tensor **query,
                        struct ah_tensor **weights)
{
    enum { PART, MASK, TURNED, SCORES, MADE };
    AH_OWNED_LIST(made, MADE);
    AH_TRY(ah_op1(AH_OP_narrow, &made[PART], AH_T(w->query), AH_I(2), AH_I(first), AH_I(count)));
    AH_TRY(ah_op1(AH_OP_mul, query, AH_T(made[PART]), AH_N(w->scale)));
    AH_TRY(wide_mask(&made[MASK], w, first, count));
    AH_TRY(ah_op1(AH_OP_transpose, &made[TURNED], AH_T(w->key), AH_I(2), AH_I(3)));
    AH_TRY(ah_op1(AH_OP_matmul, &made[SCORES], AH_T(*query), AH_T(made[TURNED])));
    return ah_op1(AH_OP_masked_softmax, weights, AH_T(made[SCORES]), AH_T(made[MASK]), AH_B(false));
}

/* Copy a result for queries from `first` on to their place in `out`, (B, L, H, E). */
static int wide_store(const struct ah_tensor *out, int64_t first, struct ah_tensor *part)
{
    AH_OWNED struct ah_tensor *heads = NULL, *place = NULL, *written = NULL;
    AH_TRY(wide_heads(&heads, out));
    AH_TRY(ah_op1(AH_OP_narrow, &place, AH_T(heads), AH_I(2), AH_I(first), AH_I(part->size[2])));
    return ah_op1(AH_OP_copy_, &written, AH_T(place), AH_T(part));
}

int ah_attention_wide(struct ah_call *c)
{
    const struct ah_args_attention *arg = ah_args(c, attention);
    struct wide w = {0};
    int status = AH_ENOTIMPL;
    if (!ah_given(&arg->cu_seq_q))
        status = wide_open(&w, arg->query.tensor, arg->key.tensor, arg->value.tensor, ah_given(&arg->mask),
                           &arg->window, arg->scale.number, arg->dropout_p.number, 2);
    for (int64_t first = 0; status == 0 && first < w.queries; first += w.rows) {
        struct ah_tensor *query = NULL, *weights = NULL, *result = NULL;
        int64_t count = w.queries - first < w.rows ? w.queries - first : w.rows;
        status = wide_weights(&w, first, count, &query, &weights);
        if (status == 0)
            status = ah_op1(AH_OP_matmul, &result, AH_T(weights), AH_T(w.value));
        if (status == 0)
            status = wide_store(c->out[0], first, result);
        ah_tensor_release(query);
        ah_tensor_release(weights);
        ah_tensor_release(result);
    }
    wide_close(&w);
    if (status < 0)
        return status;
    return c->device->type->fill(c->device, ah_tensor_data(c->out[1]), 0, ah_tensor_bytes(c->out[1]));
}

/* Add left^T right to *sum, which is NULL before the first. */
static int wide_add_product(struct ah_tensor **sum, struct ah_tensor *left, struct ah_tensor *right)
{
    AH_OWNED struct ah_tensor *turned = NULL, *product = NULL, *added = NULL;
    int count = 0;
    AH_TRY(ah_op1(AH_OP_transpose, &turned, AH_T(left), AH_I(2), AH_I(3)));
    AH_TRY(ah_op1(AH_OP_matmul, &product, AH_T(turned), AH_T(right)));
    if (*sum)
        return ah_op_call(AH_OP_add, (const struct ah_value[]){AH_T(*sum), AH_T(product)}, 2, true, &added, &count);
    *sum = ah_tensor_retain(product);
    return 0;
}

/* The part of queries from `first` on in the gradients. */
static int wide_back(const struct wide *w, struct ah_tensor *grad, int64_t first, int64_t count,
                     const struct ah_tensor *of_query, struct ah_tensor **of_key, struct ah_tensor **of_value)
{
    enum { QUERY, WEIGHTS, GRAD, TURNED, STEP, SCORES, PRODUCT, RESULT, MADE };
    AH_OWNED_LIST(made, MADE);
    AH_TRY(wide_weights(w, first, count, &made[QUERY], &made[WEIGHTS]));
    AH_TRY(ah_op1(AH_OP_narrow, &made[GRAD], AH_T(grad), AH_I(2), AH_I(first), AH_I(count)));
    AH_TRY(wide_add_product(of_value, made[WEIGHTS], made[GRAD]));
    AH_TRY(ah_op1(AH_OP_transpose, &made[TURNED], AH_T(w->value), AH_I(2), AH_I(3)));
    AH_TRY(ah_op1(AH_OP_matmul, &made[STEP], AH_T(made[GRAD]), AH_T(made[TURNED])));
    AH_TRY(ah_op1(AH_OP_softmax_backward, &made[SCORES], AH_T(made[STEP]), AH_T(made[WEIGHTS]), AH_I(-1)));
    AH_TRY(wide_add_product(of_key, made[SCORES], made[QUERY]));
    AH_TRY(ah_op1(AH_OP_matmul, &made[PRODUCT], AH_T(made[SCORES]), AH_T(w->key)));
    AH_TRY(ah_op1(AH_OP_mul, &made[RESULT], AH_T(made[PRODUCT]), AH_N(w->scale)));
    return wide_store(of_query, first, made[RESULT]);
}

/* Store a gradient (B, H, S, E), summed over the query's heads that share one of `out`, (B, S, G, E). */
static int wide_fold(struct ah_tensor *grad, const struct ah_tensor *out)
{
    AH_OWNED struct ah_tensor *split = NULL, *sum = NULL;
    int64_t heads = out->size[2], dim = 2;
    const int64_t size[] = {grad->size[0], heads, grad->size[1] / heads, grad->size[2], grad->size[3]};
    if (grad->size[1] == heads)
        return wide_store(out, 0, grad);
    AH_TRY(ah_op1(AH_OP_reshape, &split, AH_T(grad), AH_INTS_OF(size, 5)));
    AH_TRY(ah_op1(AH_OP_sum, &sum, AH_T(split), AH_INTS_OF(&dim, 1)));
    return wide_store(out, 0, sum);
}

int ah_attention_wide_backward(struct ah_call *c)
{
    const struct ah_args_attention_backward *arg = ah_args(c, attention_backward);
    AH_OWNED struct ah_tensor *grad = NULL, *of_key = NULL, *of_value = NULL;
    struct wide w = {0};
    int status = AH_ENOTIMPL;
    if (!ah_given(&arg->spans))
        status = wide_open(&w, arg->query.tensor, arg->key.tensor, arg->value.tensor, ah_given(&arg->mask),
                           &arg->window, arg->scale.number, arg->dropout_p.number, 4);
    if (status == 0)
        status = wide_operand(&grad, arg->grad.tensor, arg->grad.tensor->size[2]);
    for (int64_t first = 0; status == 0 && first < w.queries; first += w.rows)
        status = wide_back(&w, grad, first, w.queries - first < w.rows ? w.queries - first : w.rows, c->out[0],
                           &of_key, &of_value);
    if (status == 0)
        status = wide_fold(of_key, c->out[1]);
    if (status == 0)
        status = wide_fold(of_value, c->out[2]);
    wide_close(&w);
    return status;
}
