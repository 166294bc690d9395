/* Recording: the dispatcher's questions (is this call recorded? may this write happen?) and the node that it makes,
 * with edges to its inputs' nodes and the tensors that the rule's row saves. Invariant: no node holds its own results
 * (saved ones are aliases without history), and operands of an in-place op are seen as they were before the write, so
 * record runs before the write is counted. */
#include "autograd/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/graph/node.h"
#include "autograd/graph/rules.h"

static bool any_requires_grad(const struct ah_call *call)
{
    for (int i = 0; i < call->op->param_count; i++) {
        const struct ah_value *arg = &call->arg[i];
        if (arg->kind == AH_TENSOR && ah_requires_grad(arg->tensor))
            return true;
        if (arg->kind == AH_LIST)
            for (int k = 0; k < arg->list.count; k++)
                if (ah_requires_grad(arg->list.item[k]))
                    return true;
    }
    return false;
}

static bool graph_wanted(const struct ah_call *call)
{
    const struct ah_rule_row *row = &ah_rules[call->op->id];
    if (!ah_grad_enabled || !row->run || ((row->saves & AH_SAVE_IN_PLACE_ONLY) && !call->inplace))
        return false;
    return any_requires_grad(call);
}

/* Will the rule read argument i? */
static bool graph_keeps(const struct ah_call *call, int i)
{
    uint64_t saves = ah_rules[call->op->id].saves;
    unsigned inputs = i < AH_SAVED_ARGS ? (unsigned)(saves >> 8 * i) & 0xff : 0;
    if (inputs == 0xff)
        return true;
    for (int k = 0; inputs >> k; k++)
        if ((inputs >> k & 1) && call->arg[k].kind == AH_TENSOR && ah_requires_grad(call->arg[k].tensor))
            return true;
    return false;
}

static bool is_leaf_wanting(const struct ah_grad_meta *meta)
{
    return meta && meta->requires_grad && !meta->fn;
}

/* With gradients on: would a write into `target` go past autograd? */
static int check_target(const struct ah_call *call, const struct ah_tensor *target)
{
    const struct ah_grad_meta *meta = target->grad;
    const char *name = call->op->name, *mark = call->op->flags & AH_MUTATES ? "" : "_";
    if (is_leaf_wanting(meta)) {
        return ah_fail(AH_EINVAL, "%s%s: a leaf that requires grad cannot be changed in place (use no_grad, or a copy)",
                       name, mark);
    }
    if (meta && meta->base && is_leaf_wanting(meta->base->grad)) {
        return ah_fail(AH_EINVAL,
                       "%s%s: a view of a leaf that requires grad cannot be changed in place (use no_grad, or a copy)",
                       name, mark);
    }
    if (target->untracked == AH_UNTRACKED_GRAD || (target->untracked && call->recording)) {
        return ah_fail(AH_EINVAL, "%s%s: a view made under no_grad, or detached, cannot be changed in place with "
                       "gradients on: its base would not hear of it (make and change it on the same side, or use "
                       "detach)", name, mark);
    }
    return 0;
}

static int before_inplace(struct ah_call *call)
{
    struct ah_tensor *target = call->arg[0].tensor;
    if (!ah_grad_enabled)
        return 0;
    AH_TRY(check_target(call, target));
    /* Make a stale view's history true before it becomes an input. */
    struct ah_edge edge;
    struct ah_node *owned; /* none: the target is no leaf that requires grad */
    AH_TRY(ah_gradient_edge(target, &edge, &owned));
    if (!call->recording || !graph_keeps(call, 0))
        return 0;
    AH_GRAD_SCOPE(false);
    AH_TRY(ah_op1(AH_OP_clone, &call->original, AH_T(target)));
    /* For higher derivatives the copy is the old value, history and all. */
    return edge.node ? ah_set_history(call->original, edge.node, edge.output) : 0;
}

static int track_view(struct ah_call *call)
{
    struct ah_tensor *view = call->out[0], *from = call->arg[0].tensor;
    if (!ah_rules[call->op->id].run || view == from || !ah_dtype_is_float(view->dtype) ||
        view->storage != from->storage)
        return 0;
    if (from->untracked || !ah_grad_enabled) {
        bool grad = from->untracked == AH_UNTRACKED_GRAD || ah_requires_grad(from);
        view->untracked = grad ? AH_UNTRACKED_GRAD : AH_UNTRACKED;
    }
    if (!ah_grad_enabled)
        return 0;
    struct ah_grad_meta *meta = ah_grad_meta(view);
    AH_TRY_MEMORY(meta, "out of memory");
    if (meta->base)
        return 0;
    struct ah_tensor *base = from->grad && from->grad->base ? from->grad->base : from;
    meta->base = ah_tensor_retain(base);
    meta->base_version = ah_tensor_version(view);
    return 0;
}

/* A view of something with a history is kept with the history it has now, apart from its base: a later write to the
 * base may use this node's results, and the graph would hold itself. */
static int keep_view(struct ah_tensor **out, struct ah_tensor *view)
{
    AH_TRY(ah_alias(out, view));
    int status = ah_set_history(*out, view->grad->fn, view->grad->output);
    if (status < 0)
        ah_tensor_release(*out);
    return status;
}

/* The call that repeats a tensor as it is now, or NULL. */
static struct ah_recompute *recompute_of(const struct ah_tensor *tensor)
{
    const struct ah_grad_meta *meta = tensor->grad;
    bool fits = meta && meta->recompute && !meta->base && meta->fn && meta->output == 0 &&
                ah_tensor_version(tensor) == meta->recompute->result_version;
    return fits ? meta->recompute : NULL;
}

static int save_arg(struct ah_node *node, const struct ah_call *call, int i, int input)
{
    struct ah_tensor *tensor = call->arg[i].tensor;
    uint32_t version = ah_tensor_version(tensor);
    struct ah_recompute *recompute = call->inplace ? NULL : recompute_of(tensor);
    struct ah_tensor *kept;
    if (recompute) {
        recompute->refs++;
        node->saved_arg[i] = (struct ah_saved){.recompute = recompute, .input = input};
        return 0;
    }
    if (i == 0 && call->original) {
        kept = ah_tensor_retain(call->original);
        version = ah_tensor_version(kept);
    } else if (call->inplace && tensor->storage == call->out[0]->storage) {
        /* Overlaps the elements just written, which will be counted: the rule is refused if it is ever run. */
        AH_TRY(ah_alias(&kept, tensor));
    } else if (tensor->grad && tensor->grad->base && tensor->grad->fn) {
        AH_TRY(keep_view(&kept, tensor));
    } else {
        kept = ah_tensor_retain(tensor);
    }
    node->saved_arg[i] = (struct ah_saved){.tensor = kept, .version = version};
    node->arg[i] = AH_T(kept);
    return 0;
}

static int fill_node(struct ah_node *node, struct ah_call *call)
{
    const struct ah_op *op = call->op;
    int input = 0;
    for (int i = 0; i < op->param_count; i++) {
        const struct ah_value *arg = &call->arg[i];
        node->arg[i].kind = AH_NONE;
        if (arg->kind == AH_TENSOR) {
            AH_TRY(ah_node_add_input(node, &input, arg->tensor));
            if (graph_keeps(call, i))
                AH_TRY(save_arg(node, call, i, input - 1));
        } else if (arg->kind == AH_LIST) {
            for (int k = 0; k < arg->list.count; k++)
                AH_TRY(ah_node_add_input(node, &input, arg->list.item[k]));
        } else if (arg->kind == AH_STRING) {
            node->arg[i] = AH_S(strdup(arg->string));
            AH_TRY_MEMORY(node->arg[i].string, "out of memory");
        } else {
            node->arg[i] = *arg;
        }
    }
    for (int k = 0; k < call->out_count; k++) {
        ah_describe(&node->output[k], call->out[k]);
        if (ah_rules[op->id].saves & AH_SAVE_OUT(k)) {
            AH_TRY(ah_alias(&node->saved_out[k].tensor, call->out[k]));
            node->saved_out[k].version = ah_tensor_version(call->out[k]) + call->inplace;
        }
    }
    for (int i = 0; i < AH_MAX_EXTRA; i++) {
        node->extra[i] = call->extra[i];
        call->extra[i] = NULL;
    }
    node->state = call->state;
    return 0;
}

static int count_inputs(const struct ah_call *call)
{
    int count = 0;
    for (int i = 0; i < call->op->param_count; i++) {
        if (call->arg[i].kind == AH_TENSOR)
            count++;
        else if (call->arg[i].kind == AH_LIST)
            count += call->arg[i].list.count;
    }
    return count;
}

int ah_set_history(struct ah_tensor *tensor, struct ah_node *node, int output)
{
    struct ah_grad_meta *meta = ah_grad_meta(tensor);
    AH_TRY_MEMORY(meta, "out of memory");
    struct ah_node *old = meta->fn;
    ah_node_retain(node);
    ah_move_keeper(meta, node, output);
    meta->fn = node;
    meta->output = output;
    ah_node_release(old);
    return 0;
}

static const struct ah_node_class op_class;

static int graph_record(struct ah_call *call)
{
    struct ah_node *node = ah_node_new(&op_class, call->op, count_inputs(call), call->out_count);
    AH_TRY_MEMORY(node, "out of memory");
    int status = fill_node(node, call);
    if (status == 0 && call->inplace && call->out[0]->grad && call->out[0]->grad->base) {
        status = ah_rebase_view(call->out[0], node);
    } else {
        for (int k = 0; status == 0 && k < call->out_count; k++)
            if (ah_dtype_is_float(call->out[k]->dtype))
                status = ah_set_history(call->out[k], node, k);
        if (status == 0 && call->out_count > 0 && call->out[0]->grad && !call->out[0]->grad->recompute)
            call->out[0]->grad->recompute = ah_recompute_new(call);
    }
    ah_node_release(node);
    return status;
}

static int run_op(struct ah_node *node, struct ah_rule *rule)
{
    ah_rules[node->op->id].run(rule);
    return rule->status;
}

static const struct ah_node_class op_class = {.run = run_op};

int ah_record_custom(const struct ah_node_class *class, void *context, struct ah_tensor **inputs, int input_count,
                     struct ah_tensor **outputs, int output_count)
{
    struct ah_node *node = ah_node_new(class, NULL, input_count, output_count);
    AH_TRY_MEMORY(node, "out of memory");
    int status = 0, index = 0;
    while (status == 0 && index < input_count)
        status = ah_node_add_input(node, &index, inputs[index]);
    for (int k = 0; status == 0 && k < output_count; k++) {
        ah_describe(&node->output[k], outputs[k]);
        if (ah_dtype_is_float(outputs[k]->dtype))
            status = ah_set_history(outputs[k], node, k);
    }
    if (status == 0)
        node->context = context;
    ah_node_release(node);
    return status;
}

static bool is_recording(void)
{
    return ah_grad_enabled;
}

static bool is_parameter(const struct ah_tensor *tensor)
{
    return is_leaf_wanting(tensor->grad) && !tensor->grad->base;
}

void ah_autograd_open(void)
{
    static const struct ah_recorder recorder = {graph_wanted, before_inplace, graph_record,
                                                track_view, is_recording, is_parameter};
    ah_recorder = &recorder;
    ah_tensor_release_grad = ah_grad_meta_free;
}
