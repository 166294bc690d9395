/* The rule of attention without saved scores: one kernel computes the gradients of query, key and value from the
 * logarithms of the sums. For a gradient of the mask, and with create_graph, the scores are recomputed by ops that have
 * derivatives. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

static struct ah_tensor *attention_transpose(struct ah_rule *r, struct ah_tensor *t)
{
    return ah_r_transpose(r, t, -2, -1);
}

/* Heads before tokens, or behind them again. */
static struct ah_tensor *attention_swap(struct ah_rule *r, struct ah_tensor *t)
{
    return ah_r_transpose(r, t, -3, -2);
}

/* The gradient of heads that were repeated for `times` of the query's. */
static struct ah_tensor *fold_heads(struct ah_rule *r, struct ah_tensor *grad, int64_t times)
{
    if (times == 1 || !grad)
        return grad;
    int64_t size[] = {grad->size[0], grad->size[1] / times, times, grad->size[2], grad->size[3]}, dim = 2;
    struct ah_tensor *split = ah_r(r, AH_OP_reshape, AH_T(grad), AH_INTS_OF(size, 5));
    return ah_r(r, AH_OP_sum, AH_T(split), AH_INTS_OF(&dim, 1));
}

static struct ah_tensor *repeat_heads(struct ah_rule *r, struct ah_tensor *t, int64_t times)
{
    return times == 1 ? t : ah_r(r, AH_OP_repeat_interleave, AH_T(t), AH_I(times), AH_I(-3));
}

static void by_ops(struct ah_rule *r)
{
    const struct ah_args_attention *arg = ah_args(r, attention);
    const struct ah_input_meta *query = ah_rule_input(r, 0), *key = ah_rule_input(r, 1);
    double scale = arg->scale.number, p = arg->dropout_p.number;
    int64_t times = key->size[2] ? query->size[2] / key->size[2] : 1;
    int64_t size[] = {query->size[0], query->size[2], query->size[1], key->size[1]};
    struct ah_tensor *g = attention_swap(r, r->grad_out[0]),
                     *q = ah_r_scale(r, attention_swap(r, arg->query.tensor), scale);
    struct ah_tensor *k = repeat_heads(r, attention_swap(r, arg->key.tensor), times);
    struct ah_tensor *v = repeat_heads(r, attention_swap(r, arg->value.tensor), times);
    struct ah_tensor *weights = ah_r(r, AH_OP_masked_softmax, AH_T(ah_r_matmul(r, q, attention_transpose(r, k))),
                                     arg->mask, AH_B(arg->window.ints.at[1] == 0));
    struct ah_tensor *kept = weights, *step = ah_r_matmul(r, g, attention_transpose(r, v));
    if (p > 0) {
        struct ah_tensor *factor = ah_r(r, AH_OP_attention_keep, AH_T(r->extra[1]), AH_INTS_OF(size, 4), AH_N(p),
                                        AH_D(query->dtype));
        kept = ah_r_mul(r, weights, factor);
        step = ah_r_mul(r, step, factor);
    }
    step = ah_r(r, AH_OP_softmax_backward, AH_T(step), AH_T(weights), AH_I(-1));
    if (r->needs[0])
        r->grad_in[0] = attention_swap(r, ah_r_scale(r, ah_r_matmul(r, step, k), scale));
    if (r->needs[1])
        r->grad_in[1] = attention_swap(r, fold_heads(r, ah_r_matmul(r, attention_transpose(r, step), q), times));
    if (r->needs[2])
        r->grad_in[2] = attention_swap(r, fold_heads(r, ah_r_matmul(r, attention_transpose(r, kept), g), times));
    if (r->input_count > 3 && r->needs[3])
        r->grad_in[3] = ah_r_to_input(r, step, 3);
}

void ah_backward_attention(struct ah_rule *r)
{
    const struct ah_args_attention *arg = ah_args(r, attention);
    bool dense = !r->extra[0];
    if (dense && (ah_grad_enabled || (r->input_count > 3 && r->needs[3]))) {
        by_ops(r);
        return;
    }
    struct ah_tensor *grad[3];
    const struct ah_value args[] = {
        AH_T(r->grad_out[0]), arg->query, arg->key, arg->value, arg->mask, AH_T(r->extra[0]), AH_T(r->out[0]),
        AH_T(r->out[1]), AH_T(r->extra[1]), arg->window, arg->scale, arg->dropout_p,
    };
    ah_rule_ops(r, AH_OP_attention_backward, args, 12, grad, 3);
    for (int i = 0; i < 3; i++)
        ah_r_give(r, i, grad[i]);
}

/* The second half of the last dim before the first. */
static struct ah_tensor *rotary_swapped(struct ah_rule *r, struct ah_tensor *t)
{
    if (!t)
        return NULL;
    int64_t half = t->size[t->ndim - 1] / 2;
    struct ah_tensor *both[] = {ah_r(r, AH_OP_narrow, AH_T(t), AH_I(-1), AH_I(half), AH_I(half)),
                                ah_r(r, AH_OP_narrow, AH_T(t), AH_I(-1), AH_I(0), AH_I(half))};
    return both[0] && both[1] ? ah_r(r, AH_OP_cat, AH_L(both, 2), AH_I(-1)) : NULL;
}

/* The gradient of heads is rotated back: by the sines of the other half. */
void ah_backward_rotary(struct ah_rule *r)
{
    const struct ah_args_rotary *arg = ah_args(r, rotary);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input);
    ah_r_give(r, 0, ah_r(r, AH_OP_rotary, AH_T(g), arg->cos, AH_T(rotary_swapped(r, ah_given(&arg->sin)))));
    ah_r_give(r, 1, ah_r_to_input(r, ah_r_mul(r, g, x), 1));
    ah_r_give(r, 2, ah_r_to_input(r, ah_r_mul(r, g, rotary_swapped(r, x)), 2));
}
