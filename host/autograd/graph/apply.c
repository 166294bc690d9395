/* Running one node's rule: the node's saved tensors are checked and passed to it; its results are freed with it, but
 * for the gradients. Invariant: a rule never sees a saved value that was written since. */
#include <stdlib.h>

#include "autograd/graph/node.h"
#include "base/trace/counters.h"
#include "base/trace/trace.h"

static int check_saved(const struct ah_node *node, const struct ah_saved *saved, const char *what, int index)
{
    if (!saved->tensor || ah_tensor_version(saved->tensor) == saved->version)
        return 0;
    return ah_fail(AH_ESTATE,
                   "backward of %s: %s %d %s was changed in place after it was saved (version %u then, %u now)%s%s",
                   node->op->name, what, index, ah_shape(saved->tensor), saved->version,
                   ah_tensor_version(saved->tensor), node->site ? "; the op was called at " : "",
                   node->site ? node->site : "");
}

static int check_node(const struct ah_node *node)
{
    if (node->consumed) {
        return ah_fail(AH_ESTATE, "backward: the graph was already used by a backward, which freed its saved tensors; "
                       "pass retain_graph = true to the first one");
    }
    for (int i = 0; node->op && i < node->op->param_count; i++)
        AH_TRY(check_saved(node, &node->saved_arg[i], "argument", i + 1));
    for (int i = 0; i < AH_MAX_OUTS; i++)
        if (node->saved_out[i].tensor)
            AH_TRY(check_saved(node, &node->saved_out[i], "result", i + 1));
    return 0;
}

/* Under create_graph a saved result must be seen as this node's result again, for a second derivative. */
static int lend_results(struct ah_rule *rule, struct ah_tensor **out)
{
    struct ah_node *node = rule->node;
    for (int k = 0; k < AH_MAX_OUTS; k++) {
        const struct ah_tensor *saved = out[k] = node->saved_out[k].tensor;
        if (!saved || !ah_grad_enabled || !ah_dtype_is_float(saved->dtype))
            continue;
        AH_TRY(ah_tensor_view(&out[k], node->saved_out[k].tensor, saved->size, saved->stride, saved->ndim,
                              saved->offset));
        if (!ah_rule_keep(rule, out[k]))
            return rule->status;
        struct ah_grad_meta *meta = ah_grad_meta(out[k]);
        AH_TRY_MEMORY(meta, "out of memory");
        ah_node_retain(node);
        meta->fn = node;
        meta->output = k;
    }
    return 0;
}

/* Compute the saved arguments that are not held, for the time of the rule. Under create_graph they have the history of
 * the tensors that they replace. */
static int make_recomputed(struct ah_rule *rule)
{
    struct ah_node *node = rule->node;
    for (int i = 0; node->op && i < node->op->param_count; i++) {
        const struct ah_saved *saved = &node->saved_arg[i];
        struct ah_tensor *made;
        if (!saved->recompute)
            continue;
        AH_TRY(ah_recompute_run(saved->recompute, node->op->name, &made));
        if (!ah_rule_keep(rule, made))
            return rule->status;
        node->arg[i] = AH_T(made);
        if (ah_grad_enabled)
            AH_TRY(ah_set_history(made, node->edge[saved->input].node, node->edge[saved->input].output));
    }
    return 0;
}

static void forget_recomputed(struct ah_node *node)
{
    for (int i = 0; node->op && i < node->op->param_count; i++)
        if (node->saved_arg[i].recompute)
            node->arg[i] = (struct ah_value){.kind = AH_NONE};
}

int ah_run_rule(struct ah_node *node, bool last, struct ah_tensor **grad_out, struct ah_destination *into,
                struct ah_tensor **grad_in, struct ah_slice *place)
{
    int inputs = node->input_count;
    for (int i = 0; i < inputs; i++)
        grad_in[i] = NULL;
    AH_TRY(check_node(node));
    struct ah_rule rule;
    bool needs_small[32];
    bool *needs = inputs <= 32 ? needs_small : malloc((size_t)inputs);
    struct ah_tensor *saved_out[AH_MAX_OUTS];
    AH_TRY_MEMORY(needs, "out of memory");
    for (int i = 0; i < inputs; i++)
        needs[i] = node->edge[i].node != NULL;
    rule.node = node;
    rule.arg = node->arg;
    rule.state = &node->state;
    rule.extra = node->extra;
    rule.out = saved_out;
    rule.grad_out = grad_out;
    rule.grad_in = grad_in;
    rule.place.dim = -1;
    rule.into = into;
    rule.needs = needs;
    rule.last = last;
    rule.input_count = inputs;
    rule.output_count = node->output_count;
    rule.status = 0;
    rule.temp = rule.own_temp; /* its elements are not set before they are used: 768 bytes a node */
    rule.temp_count = 0;
    rule.temp_room = AH_RULE_TEMPS;
    /* Relaxed, as all counters (base/trace/counters.h). */
    atomic_store_explicit(&ah_counters->node, node->op ? (int)node->op->id + 1 : 0, memory_order_relaxed);
    int status = lend_results(&rule, saved_out);
    struct ah_trace_mark mark = ah_trace_begin(ah_node_name(node));
    if (status == 0)
        status = make_recomputed(&rule);
    if (status == 0)
        status = node->class->run(node, &rule);
    forget_recomputed(node);
    ah_trace_end(mark, AH_TRACE_BACKWARD, ah_node_name(node));
    if (status == 0)
        status = rule.status;
    for (int i = 0; i < inputs; i++) {
        if (status < 0 || !needs[i])
            grad_in[i] = NULL;
        ah_tensor_retain(grad_in[i]);
    }
    for (size_t i = 0; i < rule.temp_count; i++)
        ah_tensor_release(rule.temp[i]);
    if (rule.temp != rule.own_temp)
        free(rule.temp);
    *place = rule.place;
    if (needs != needs_small)
        free(needs);
    return status;
}
