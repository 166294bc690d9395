/* The expressions in which rules are written. Every result belongs to the rule and is freed with it; after a failure
 * calls return NULL, and accept NULL without an error. Invariant: with create_graph no value loses its derivative
 * unnoticed. */
#include "autograd/graph/rule.h"

#include <string.h>

#include "base/memory/array.h"
#include "autograd/graph/node.h"
#include "autograd/graph/rules.h"

static int grow_temps(struct ah_rule *rule)
{
    bool own = rule->temp == rule->own_temp;
    size_t room = own ? 0 : rule->temp_room;
    struct ah_tensor **grown = own ? NULL : rule->temp;
    int status = ah_grow(&grown, rule->temp_count + 1, &room, sizeof(struct ah_tensor *));
    if (status < 0)
        return rule->status = status;
    if (own)
        memcpy(grown, rule->own_temp, sizeof rule->own_temp);
    rule->temp = grown;
    rule->temp_room = room;
    return 0;
}

struct ah_tensor *ah_rule_keep(struct ah_rule *rule, struct ah_tensor *tensor)
{
    if (!tensor)
        return NULL;
    if (rule->temp_count == rule->temp_room && grow_temps(rule) < 0) {
        ah_tensor_release(tensor);
        return NULL;
    }
    rule->temp[rule->temp_count++] = tensor;
    return tensor;
}

void ah_rule_free(struct ah_rule *rule, const struct ah_tensor *made)
{
    const struct ah_storage *storage = made ? made->storage : NULL;
    size_t kept = 0;
    for (size_t k = 0; k < rule->temp_count; k++) {
        if (rule->temp[k]->storage == storage)
            ah_tensor_release(rule->temp[k]);
        else
            rule->temp[kept++] = rule->temp[k];
    }
    rule->temp_count = kept;
}

void ah_rule_done(struct ah_rule *rule, int i)
{
    struct ah_node *node = rule->node;
    if (!node->saved_arg[i].recompute || node->arg[i].kind != AH_TENSOR)
        return;
    ah_rule_free(rule, node->arg[i].tensor);
    node->arg[i] = (struct ah_value){.kind = AH_NONE};
}

/* With create_graph every value must know its own derivative; a result of a fused kernel without a rule, of tensors
 * that require grad, does not. */
static bool breaks_history(const struct ah_op *op, const struct ah_value *args, int count, struct ah_tensor **made,
                           int made_count)
{
    if (ah_rules[op->id].run || (op->flags & AH_COMPOSITE))
        return false;
    bool floating = false, wanted = false;
    for (int i = 0; i < made_count; i++)
        floating = floating || ah_dtype_is_float(made[i]->dtype);
    for (int i = 0; i < count && floating; i++)
        wanted = wanted || (args[i].kind == AH_TENSOR && ah_requires_grad(args[i].tensor));
    return wanted;
}

void ah_rule_ops(struct ah_rule *rule, enum ah_opid id, const struct ah_value *args, int count,
                 struct ah_tensor **out, int out_count)
{
    for (int i = 0; i < out_count; i++)
        out[i] = NULL;
    if (rule->status < 0)
        return;
    const struct ah_op *op = ah_op_get(id);
    for (int i = 0; i < op->param_count && i < count; i++) {
        bool needed = (op->param[i].kind == AH_TENSOR || op->param[i].kind == AH_OPERAND) && !op->param[i].optional;
        if (needed && args[i].kind == AH_NONE)
            return; /* an absent gradient stays absent */
    }
    struct ah_tensor *made[AH_MAX_OUTS];
    int made_count = 0;
    int status = ah_op_call(id, args, count, false, made, &made_count);
    if (status < 0) {
        rule->status = status;
        return;
    }
    if (ah_grad_enabled && breaks_history(op, args, count, made, made_count))
        rule->status = ah_fail(AH_ENOTIMPL, "backward of %s: its second derivative is not implemented",
                               ah_node_name(rule->node));
    for (int i = 0; i < made_count; i++) {
        struct ah_tensor *kept = ah_rule_keep(rule, made[i]);
        if (i < out_count)
            out[i] = kept;
    }
}

struct ah_tensor *ah_rule_op(struct ah_rule *rule, enum ah_opid id, const struct ah_value *args, int count)
{
    struct ah_tensor *out;
    ah_rule_ops(rule, id, args, count, &out, 1);
    return out;
}

struct ah_tensor *ah_rule_op_over(struct ah_rule *rule, enum ah_opid id, const struct ah_value *args, int count)
{
    struct ah_tensor *over = args[0].tensor, *out;
    int made;
    if (rule->status < 0 || ah_grad_enabled || !rule->last || !ah_exclusive(over) || over->storage->channels_last)
        return ah_rule_op(rule, id, args, count);
    struct ah_value own[AH_MAX_ARGS];
    memcpy(own, args, (size_t)count * sizeof *args);
    rule->status = ah_alias(&own[0].tensor, over); /* the gradient must not have the history of the value */
    if (rule->status < 0)
        return NULL;
    rule->status = ah_op_call(id, own, count, true, &out, &made);
    ah_tensor_release(own[0].tensor);
    return rule->status < 0 ? NULL : ah_rule_keep(rule, out);
}

#define RULE_OF_TWO(name)                                                                            \
    struct ah_tensor *ah_r_##name(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b)       \
    {                                                                                                \
        return ah_r(r, AH_OP_##name, AH_T(a), AH_T(b));                                              \
    }
RULE_OF_TWO(add)
RULE_OF_TWO(sub)
RULE_OF_TWO(mul)
RULE_OF_TWO(div)
RULE_OF_TWO(matmul)

struct ah_tensor *ah_r_neg(struct ah_rule *r, struct ah_tensor *a)
{
    return ah_r(r, AH_OP_neg, AH_T(a));
}

struct ah_tensor *ah_r_scale(struct ah_rule *r, struct ah_tensor *a, double factor)
{
    return factor == 1 ? a : ah_r(r, AH_OP_mul, AH_T(a), AH_N(factor));
}

struct ah_tensor *ah_r_shift(struct ah_rule *r, struct ah_tensor *a, double addend)
{
    return ah_r(r, AH_OP_add, AH_T(a), AH_N(addend));
}

struct ah_tensor *ah_r_unary(struct ah_rule *r, enum ah_opid op, struct ah_tensor *x)
{
    return ah_r(r, op, AH_T(x));
}

struct ah_tensor *ah_r_compare(struct ah_rule *r, enum ah_opid op, struct ah_tensor *x, double number)
{
    return ah_r(r, op, AH_T(x), AH_N(number));
}

struct ah_tensor *ah_r_where(struct ah_rule *r, struct ah_tensor *mask, struct ah_tensor *x, struct ah_value other)
{
    return ah_r(r, AH_OP_where, AH_T(mask), AH_T(x), other);
}

struct ah_tensor *ah_r_masked(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *mask)
{
    return ah_r(r, AH_OP_masked_fill, AH_T(x), AH_T(mask), AH_N(0));
}

struct ah_tensor *ah_r_transpose(struct ah_rule *r, struct ah_tensor *a, int64_t d0, int64_t d1)
{
    return ah_r(r, AH_OP_transpose, AH_T(a), AH_I(d0), AH_I(d1));
}

const struct ah_input_meta *ah_rule_input(const struct ah_rule *rule, int i)
{
    return &rule->node->input[i];
}

struct ah_tensor *ah_r_to_input(struct ah_rule *r, struct ah_tensor *grad, int i)
{
    if (!grad)
        return NULL;
    const struct ah_input_meta *meta = ah_rule_input(r, i);
    bool same = grad->ndim == meta->ndim;
    for (int d = 0; same && d < meta->ndim; d++)
        same = grad->size[d] == meta->size[d];
    if (!same)
        grad = ah_r(r, AH_OP_sum_to, AH_T(grad), AH_INTS_OF(meta->size, meta->ndim));
    if (grad && grad->dtype != meta->dtype)
        grad = ah_r(r, AH_OP_to, AH_T(grad), AH_D(meta->dtype));
    if (grad && grad->storage->device != meta->device)
        grad = ah_r(r, AH_OP_to_device, AH_T(grad), AH_DEV(meta->device));
    return grad;
}

void ah_rule_set(struct ah_rule *r, int i, struct ah_tensor *grad)
{
    r->grad_in[i] = ah_r_to_input(r, grad, i);
}

void ah_rule_store(struct ah_rule *r, int i, struct ah_tensor *grad)
{
    struct ah_destination *to = r->into ? &r->into[i] : NULL;
    struct ah_tensor *stored;
    int count;
    if (r->status < 0 || !grad || !to || !to->slot) {
        r->grad_in[i] = grad;
        return;
    }
    const struct ah_value args[] = {AH_T(to->slot), AH_T(grad)};
    r->status = ah_op_call(to->adds ? AH_OP_add : AH_OP_copy_, args, 2, to->adds, &stored, &count);
    if (r->status == 0)
        ah_tensor_release(stored);
    to->written = r->status == 0;
}

/* The slot that the gradient of input i may overwrite, or NULL. */
static struct ah_tensor *rule_place(const struct ah_rule *r, int i)
{
    const struct ah_destination *to = r->into ? &r->into[i] : NULL;
    return to && to->slot && !to->adds && (to->exact || !ah_on_cpu(to->slot)) ? to->slot : NULL;
}

void ah_rule_op_place(struct ah_rule *rule, int i, enum ah_opid id, const struct ah_value *args, int count)
{
    struct ah_tensor *place = rule_place(rule, i), *made[AH_MAX_OUTS];
    int made_count;
    if (!place) {
        rule->grad_in[i] = ah_rule_op(rule, id, args, count);
        return;
    }
    if (rule->status < 0)
        return;
    rule->status = ah_op_call_into(id, args, count, place, made, &made_count);
    if (rule->status < 0)
        return;
    for (int k = 0; k < made_count; k++)
        ah_rule_keep(rule, made[k]);
    rule->into[i].written = made[0] == place;
    if (made[0] != place)
        rule->grad_in[i] = made[0];
}

void ah_r_give_slice(struct ah_rule *r, struct ah_tensor *grad, int64_t dim, int64_t start)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    if (ah_grad_enabled) {
        r->grad_in[0] = ah_r(r, AH_OP_slice_backward, AH_T(grad), AH_INTS_OF(meta->size, meta->ndim), AH_I(dim),
                             AH_I(start), AH_I(1));
        return;
    }
    r->grad_in[0] = grad;
    r->place = (struct ah_slice){(int)dim, start};
}

struct ah_tensor *ah_r_zeros_input(struct ah_rule *r, int i)
{
    const struct ah_input_meta *meta = ah_rule_input(r, i);
    struct ah_tensor *zeros;
    if (r->status < 0)
        return NULL;
    r->status = ah_tensor_zeros(&zeros, meta->size, meta->ndim, meta->dtype, meta->device);
    return r->status < 0 ? NULL : ah_rule_keep(r, zeros);
}
