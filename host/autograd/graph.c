#include "autograd/graph.h"

#include "autograd/engine.h"

#include <stdlib.h>
#include <string.h>

bool ah_grad_enabled = true;

static uint64_t next_sequence;

/* --- nodes --- */

static struct ah_node *node_new(const struct ah_node_class *class, const struct ah_op *op, int inputs, int outputs)
{
    int params = op ? op->param_count : 0;
    size_t size = sizeof(struct ah_node) + (size_t)inputs * (sizeof(struct ah_edge) + sizeof(struct ah_input_meta)) +
                  (size_t)outputs * sizeof(struct ah_input_meta) +
                  (size_t)params * (sizeof(struct ah_value) + sizeof(struct ah_saved));
    struct ah_node *node = calloc(1, size);
    if (!node)
        return NULL;
    char *at = (char *)(node + 1);
    node->edge = (struct ah_edge *)(void *)at;
    at += (size_t)inputs * sizeof(struct ah_edge);
    node->input = (struct ah_input_meta *)(void *)at;
    at += (size_t)inputs * sizeof(struct ah_input_meta);
    node->output = (struct ah_input_meta *)(void *)at;
    at += (size_t)outputs * sizeof(struct ah_input_meta);
    node->arg = (struct ah_value *)(void *)at;
    at += (size_t)params * sizeof(struct ah_value);
    node->saved_arg = (struct ah_saved *)(void *)at;
    node->refs = 1;
    node->class = class;
    node->op = op;
    node->input_count = inputs;
    node->output_count = outputs;
    node->sequence = next_sequence++;
    return node;
}

void ah_node_retain(struct ah_node *node)
{
    if (node)
        node->refs++;
}

static void free_hooks(struct ah_hook *hook)
{
    while (hook) {
        struct ah_hook *next = hook->next;
        hook->free(hook);
        hook = next;
    }
}

void ah_node_drop_saved(struct ah_node *node)
{
    for (int i = 0; i < AH_MAX_EXTRA; i++) {
        ah_tensor_release(node->extra[i]);
        node->extra[i] = NULL;
    }
    for (int i = 0; i < AH_MAX_OUTS; i++) {
        ah_tensor_release(node->saved_out[i].tensor);
        node->saved_out[i].tensor = NULL;
    }
    for (int i = 0; node->op && i < node->op->param_count; i++) {
        struct ah_value *arg = &node->arg[i];
        if (arg->kind == AH_LIST) {
            for (int k = 0; k < arg->list.count; k++)
                ah_tensor_release(arg->list.item[k]);
            free(arg->list.item);
            arg->list.item = NULL;
            arg->list.count = 0;
        } else if (arg->kind == AH_STRING) {
            free((char *)(uintptr_t)arg->string);
            arg->string = NULL;
        }
        ah_tensor_release(node->saved_arg[i].tensor);
        node->saved_arg[i].tensor = NULL;
    }
    if (node->class->drop_saved)
        node->class->drop_saved(node);
}

static void node_free(struct ah_node *node)
{
    ah_node_drop_saved(node);
    free_hooks(node->hooks);
    for (int i = 0; i < node->input_count; i++)
        ah_node_release(node->edge[i].node);
    if (node->class->free)
        node->class->free(node);
    free(node);
}

/* A chain of 100,000 nodes must not recurse: nested releases only queue what the outermost one frees. */
void ah_node_release(struct ah_node *node)
{
    static struct ah_node *queue;
    static bool draining;
    if (!node || --node->refs > 0)
        return;
    node->next_freed = queue;
    queue = node;
    if (draining)
        return;
    draining = true;
    while (queue) {
        struct ah_node *first = queue;
        queue = first->next_freed;
        node_free(first);
    }
    draining = false;
}

const char *ah_node_name(const struct ah_node *node)
{
    return node->class->name ? node->class->name : node->op->name;
}

static void describe(struct ah_input_meta *meta, const struct ah_tensor *tensor)
{
    meta->ndim = tensor->ndim;
    meta->dtype = tensor->dtype;
    for (int d = 0; d < tensor->ndim; d++)
        meta->size[d] = tensor->size[d];
}

/* --- what a tensor knows --- */

static void meta_free(struct ah_grad_meta *meta)
{
    free_hooks(meta->hooks);
    struct ah_tensor *grad = meta->grad, *base = meta->base, *slot = meta->slot;
    struct ah_node *fn = meta->fn;
    free(meta);
    ah_tensor_release(grad);
    ah_tensor_release(slot);
    ah_tensor_release(base);
    ah_node_release(fn);
}

struct ah_grad_meta *ah_grad_meta(struct ah_tensor *tensor)
{
    if (!tensor->grad)
        tensor->grad = calloc(1, sizeof *tensor->grad);
    return tensor->grad;
}

bool ah_requires_grad(const struct ah_tensor *tensor)
{
    const struct ah_grad_meta *meta = tensor->grad;
    if (!meta)
        return false;
    if (meta->requires_grad || meta->fn)
        return true;
    /* A view made before its base began to require grad (by an in-place write). */
    return meta->base && meta->base_version != tensor->storage->version && ah_requires_grad(meta->base);
}

bool ah_is_leaf(const struct ah_tensor *tensor)
{
    return !tensor->grad || (!tensor->grad->fn && !(tensor->grad->base && ah_requires_grad(tensor)));
}

int ah_set_requires_grad(struct ah_tensor *tensor, bool on)
{
    if (on && !ah_dtype_is_float(tensor->dtype)) {
        return ah_fail(AH_EINVAL, "requires_grad: only floating tensors can require grad, this one is %s",
                       ah_dtype_name(tensor->dtype));
    }
    if (!ah_is_leaf(tensor)) {
        if (on)
            return 0;
        return ah_fail(AH_EINVAL, "requires_grad: the result of an op cannot be changed; use detach()");
    }
    if (!on && !tensor->grad)
        return 0;
    struct ah_grad_meta *meta = ah_grad_meta(tensor);
    if (!meta)
        return ah_fail(AH_ENOMEM, "out of memory");
    meta->requires_grad = on;
    return 0;
}

struct ah_tensor *ah_grad(const struct ah_tensor *tensor)
{
    const struct ah_grad_meta *meta = tensor->grad;
    if (!meta)
        return NULL;
    if (meta->slot)
        return *meta->has_grad ? meta->slot : NULL;
    return meta->grad;
}

int ah_set_grad(struct ah_tensor *tensor, struct ah_tensor *grad)
{
    struct ah_grad_meta *meta = ah_grad_meta(tensor);
    if (!meta)
        return ah_fail(AH_ENOMEM, "out of memory");
    if (grad && (!ah_same_shape(tensor, grad) || tensor->dtype != grad->dtype)) {
        return ah_fail(AH_EINVAL, "grad: expected %s %s, got %s %s", ah_dtype_name(tensor->dtype), ah_shape(tensor),
                       ah_dtype_name(grad->dtype), ah_shape(grad));
    }
    if (meta->slot) {
        *meta->has_grad = grad != NULL;
        if (!grad || grad == meta->slot)
            return 0;
        bool enabled = ah_grad_enabled;
        ah_grad_enabled = false;
        struct ah_tensor *copied;
        int status = ah_op1(AH_OP_copy_, &copied, AH_T(meta->slot), AH_T(grad));
        ah_grad_enabled = enabled;
        if (status == 0)
            ah_tensor_release(copied);
        return status;
    }
    ah_tensor_retain(grad);
    ah_tensor_release(meta->grad);
    meta->grad = grad;
    return 0;
}

int ah_set_grad_slot(struct ah_tensor *leaf, struct ah_tensor *slot, bool *has_grad,
                     void (*ready)(void *context, int index), void *context, int index)
{
    struct ah_grad_meta *meta = ah_grad_meta(leaf);
    if (!meta)
        return ah_fail(AH_ENOMEM, "out of memory");
    struct ah_tensor *old = ah_tensor_retain(ah_grad(leaf));
    ah_tensor_release(meta->grad);
    ah_tensor_release(meta->slot);
    meta->grad = NULL;
    meta->slot = ah_tensor_retain(slot);
    meta->has_grad = has_grad;
    meta->ready = ready;
    meta->ready_context = context;
    meta->ready_index = index;
    int status = 0;
    if (slot)
        status = ah_set_grad(leaf, old);
    else if (old) {
        /* Leaving the arena: keep the values, not the alias. */
        struct ah_tensor *copy;
        status = ah_op1(AH_OP_clone, &copy, AH_T(old));
        if (status == 0)
            meta->grad = copy;
    }
    ah_tensor_release(old);
    return status;
}

/* --- leaves --- */

static int no_run(struct ah_node *node, struct ah_rule *rule)
{
    return 0; /* the engine accumulates itself */
}

static void accumulator_free(struct ah_node *node)
{
    struct ah_tensor *leaf = node->context;
    if (leaf->grad)
        leaf->grad->accumulator = NULL;
    ah_tensor_release(leaf);
}

const struct ah_node_class ah_accumulate_class = {.name = "accumulate_grad", .run = no_run, .free = accumulator_free};

static int leaf_edge(struct ah_tensor *leaf, struct ah_edge *out, struct ah_node **owned)
{
    struct ah_grad_meta *meta = leaf->grad;
    if (!meta->accumulator) {
        struct ah_node *node = node_new(&ah_accumulate_class, NULL, 0, 1);
        if (!node)
            return ah_fail(AH_ENOMEM, "out of memory");
        node->sequence = UINT64_MAX; /* run as soon as all uses have contributed */
        node->context = ah_tensor_retain(leaf);
        describe(&node->output[0], leaf);
        meta->accumulator = node;
        *owned = node;
    }
    *out = (struct ah_edge){meta->accumulator, 0};
    return 0;
}

/* The base was written in place since this view was made: its node is the base's history seen through the view. */
static int remake_view(struct ah_tensor *view)
{
    struct ah_grad_meta *meta = view->grad;
    struct ah_tensor *fresh;
    bool enabled = ah_grad_enabled;
    ah_grad_enabled = true;
    int status = ah_op1(AH_OP_as_strided, &fresh, AH_T(meta->base), AH_INTS_OF(view->size, view->ndim),
                        AH_INTS_OF(view->stride, view->ndim), AH_I(view->offset));
    ah_grad_enabled = enabled;
    AH_TRY(status);
    struct ah_node *old = meta->fn;
    meta->fn = fresh->grad ? fresh->grad->fn : NULL;
    meta->output = 0;
    ah_node_retain(meta->fn);
    meta->base_version = view->storage->version;
    ah_node_release(old);
    ah_tensor_release(fresh);
    return 0;
}

int ah_gradient_edge(struct ah_tensor *tensor, struct ah_edge *out, struct ah_node **owned)
{
    struct ah_grad_meta *meta = tensor->grad;
    *owned = NULL;
    *out = (struct ah_edge){NULL, 0};
    if (!meta)
        return 0;
    if (meta->base && meta->base_version != tensor->storage->version && ah_requires_grad(meta->base))
        AH_TRY(remake_view(tensor));
    if (meta->fn)
        *out = (struct ah_edge){meta->fn, meta->output};
    else if (meta->requires_grad)
        return leaf_edge(tensor, out, owned);
    return 0;
}

/* --- recording --- */

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

static bool wanted(const struct ah_call *call)
{
    return ah_grad_enabled && any_requires_grad(call);
}

static bool keeps(const struct ah_op *op, const struct ah_call *call, int i)
{
    if (!(op->saves & AH_SAVE(i)))
        return false;
    if (!(op->saves & AH_SAVE_CROSS) || i > 1)
        return true;
    const struct ah_value *other = &call->arg[1 - i];
    return other->kind == AH_TENSOR && ah_requires_grad(other->tensor);
}

static int before_inplace(struct ah_call *call)
{
    struct ah_tensor *target = call->arg[0].tensor;
    const struct ah_grad_meta *meta = target->grad;
    if (!ah_grad_enabled)
        return 0;
    const char *mark = call->op->flags & AH_MUTATES ? "" : "_";
    if (meta && meta->requires_grad && !meta->fn) {
        return ah_fail(AH_EINVAL, "%s%s: a leaf that requires grad cannot be changed in place (use no_grad, or a copy)",
                       call->op->name, mark);
    }
    if (meta && meta->base && meta->base->grad && meta->base->grad->requires_grad && !meta->base->grad->fn) {
        return ah_fail(AH_EINVAL,
                       "%s%s: a view of a leaf that requires grad cannot be changed in place (use no_grad, or a copy)",
                       call->op->name, mark);
    }
    /* Make a stale view's history true before it becomes an input. */
    struct ah_edge edge;
    struct ah_node *owned;
    if (meta && meta->base)
        AH_TRY(ah_gradient_edge(target, &edge, &owned));
    if (!call->recording || !keeps(call->op, call, 0))
        return 0;
    ah_grad_enabled = false;
    int status = ah_op1(AH_OP_clone, &call->original, AH_T(target));
    ah_grad_enabled = true;
    return status;
}

static void track_view(struct ah_call *call)
{
    struct ah_tensor *view = call->out[0], *from = call->arg[0].tensor;
    if (!ah_grad_enabled || view == from || !ah_dtype_is_float(view->dtype) || view->storage != from->storage)
        return;
    struct ah_grad_meta *meta = ah_grad_meta(view);
    if (!meta || meta->base)
        return;
    struct ah_tensor *base = from->grad && from->grad->base ? from->grad->base : from;
    meta->base = ah_tensor_retain(base);
    meta->base_version = view->storage->version;
}

/* Same window on the same storage, with no history: keeps values without keeping the graph. */
static int alias(struct ah_tensor **out, const struct ah_tensor *tensor)
{
    return ah_tensor_view(out, tensor, tensor->size, tensor->stride, tensor->ndim, tensor->offset);
}

static int add_input(struct ah_node *node, int *index, struct ah_tensor *tensor)
{
    struct ah_node *owned;
    AH_TRY(ah_gradient_edge(tensor, &node->edge[*index], &owned));
    if (!owned)
        ah_node_retain(node->edge[*index].node);
    describe(&node->input[*index], tensor);
    ++*index;
    return 0;
}

static int save_arg(struct ah_node *node, const struct ah_call *call, int i)
{
    struct ah_tensor *tensor = call->arg[i].tensor;
    uint32_t version = tensor->storage->version;
    struct ah_tensor *kept;
    if (i == 0 && call->original) {
        kept = ah_tensor_retain(call->original);
        version = kept->storage->version;
    } else if (call->inplace && tensor->storage == call->out[0]->storage) {
        /* Overlaps what was just written: the rule is refused if it is ever run. */
        AH_TRY(alias(&kept, tensor));
        version--;
    } else {
        kept = ah_tensor_retain(tensor);
    }
    node->saved_arg[i] = (struct ah_saved){kept, version};
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
            AH_TRY(add_input(node, &input, arg->tensor));
            if (keeps(op, call, i))
                AH_TRY(save_arg(node, call, i));
        } else if (arg->kind == AH_LIST) {
            for (int k = 0; k < arg->list.count; k++)
                AH_TRY(add_input(node, &input, arg->list.item[k]));
        } else if (arg->kind == AH_STRING) {
            node->arg[i] = AH_S(strdup(arg->string));
        } else {
            node->arg[i] = *arg;
        }
    }
    for (int k = 0; k < call->out_count; k++) {
        describe(&node->output[k], call->out[k]);
        if (op->saves & AH_SAVE_OUT(k)) {
            AH_TRY(alias(&node->saved_out[k].tensor, call->out[k]));
            node->saved_out[k].version = call->out[k]->storage->version;
        }
    }
    for (int i = 0; i < AH_MAX_EXTRA; i++) {
        node->extra[i] = call->extra[i];
        call->extra[i] = NULL;
    }
    memcpy(node->state, call->state, sizeof node->state);
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

static int keep_grad(struct ah_hook *hook, struct ah_tensor **grad)
{
    struct ah_grad_meta *meta = hook->context;
    ah_tensor_retain(*grad);
    ah_tensor_release(meta->grad);
    meta->grad = *grad;
    return 0;
}

/* The node must not point to a tensor that is gone or has another history now. */
static void forget_retained(struct ah_grad_meta *meta)
{
    if (!meta->retain_grad || !meta->fn)
        return;
    for (struct ah_hook **at = &meta->fn->hooks; *at; at = &(*at)->next) {
        if ((*at)->call == keep_grad && (*at)->context == meta) {
            struct ah_hook *found = *at;
            *at = found->next;
            found->free(found);
            break;
        }
    }
    meta->retain_grad = false;
}

static int set_history(struct ah_tensor *tensor, struct ah_node *node, int output)
{
    struct ah_grad_meta *meta = ah_grad_meta(tensor);
    if (!meta)
        return ah_fail(AH_ENOMEM, "out of memory");
    forget_retained(meta);
    ah_node_retain(node);
    ah_node_release(meta->fn);
    meta->fn = node;
    meta->output = output;
    return 0;
}

/* --- in-place writes into views: the base's history goes through the write --- */

struct copy_slices {
    struct ah_node *inner; /* the op on the slice */
    struct ah_tensor *geometry; /* a window with the slice's shape on the base's storage; values unused */
    int64_t base_offset;
};

static int run_copy_slices(struct ah_node *node, struct ah_rule *rule)
{
    struct copy_slices *slices = node->context;
    const struct ah_tensor *g = slices->geometry;
    struct ah_tensor *grad = ah_r(rule, AH_OP_clone, AH_T(rule->grad_out[0]));
    struct ah_tensor *window = ah_r(rule, AH_OP_as_strided, AH_T(grad), AH_INTS_OF(g->size, g->ndim),
                                    AH_INTS_OF(g->stride, g->ndim), AH_I(g->offset - slices->base_offset));
    struct ah_tensor *inner_grad = ah_r(rule, AH_OP_clone, AH_T(window));
    if (!inner_grad)
        return rule->status;
    struct ah_tensor *inner_in[64] = {NULL};
    if (slices->inner->input_count > 64)
        return ah_fail(AH_ENOTIMPL, "%s into a view: too many inputs", ah_node_name(slices->inner));
    AH_TRY(ah_run_rule(slices->inner, &inner_grad, inner_in));
    for (int i = 0; i < slices->inner->input_count; i++)
        ah_rule_keep(rule, inner_in[i]);
    struct ah_tensor *zero = ah_r(rule, AH_OP_zeros_like, AH_T(window));
    ah_r(rule, AH_OP_copy_, AH_T(window), AH_T(inner_in[0] ? inner_in[0] : zero));
    rule->grad_in[0] = grad;
    for (int i = 1; i < slices->inner->input_count; i++)
        rule->grad_in[i] = inner_in[i];
    return rule->status;
}

static void copy_slices_drop(struct ah_node *node)
{
    struct copy_slices *slices = node->context;
    if (slices && slices->inner)
        ah_node_drop_saved(slices->inner);
}

static void copy_slices_free(struct ah_node *node)
{
    struct copy_slices *slices = node->context;
    if (!slices)
        return;
    ah_node_release(slices->inner);
    ah_tensor_release(slices->geometry);
    free(slices);
}

static const struct ah_node_class copy_slices_class = {
    .name = "copy_slices", .run = run_copy_slices, .drop_saved = copy_slices_drop, .free = copy_slices_free};

static int rebase_view(struct ah_tensor *view, struct ah_node *inner)
{
    struct ah_tensor *base = view->grad->base;
    if (!ah_tensor_is_contiguous(base)) {
        return ah_fail(AH_ENOTIMPL, "%s: writing in place into a view of a non-contiguous tensor that takes part in "
                       "autograd; call contiguous() first", ah_node_name(inner));
    }
    struct ah_node *node = node_new(&copy_slices_class, NULL, inner->input_count, 1);
    struct copy_slices *slices = calloc(1, sizeof *slices);
    int status = 0;
    if (!node || !slices) {
        free(node);
        free(slices);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    node->context = slices;
    slices->base_offset = base->offset;
    ah_node_retain(inner);
    slices->inner = inner;
    AH_TRYGO(alias(&slices->geometry, view), out);
    int index = 0;
    AH_TRYGO(add_input(node, &index, base), out);
    for (; index < inner->input_count; index++) {
        node->edge[index] = inner->edge[index];
        ah_node_retain(node->edge[index].node);
        node->input[index] = inner->input[index];
    }
    /* The inner rule must compute the gradient of the old slice whenever the base wants one. */
    if (!inner->edge[0].node && node->edge[0].node) {
        inner->edge[0] = node->edge[0];
        ah_node_retain(inner->edge[0].node);
    }
    describe(&node->output[0], base);
    AH_TRYGO(set_history(base, node, 0), out);
    status = remake_view(view);
out:
    ah_node_release(node);
    return status;
}

static const struct ah_node_class op_class;

static int record(struct ah_call *call)
{
    struct ah_node *node = node_new(&op_class, call->op, count_inputs(call), call->out_count);
    if (!node)
        return ah_fail(AH_ENOMEM, "out of memory");
    int status = fill_node(node, call);
    if (status == 0 && call->inplace && call->out[0]->grad && call->out[0]->grad->base) {
        status = rebase_view(call->out[0], node);
    } else {
        for (int k = 0; status == 0 && k < call->out_count; k++)
            if (ah_dtype_is_float(call->out[k]->dtype))
                status = set_history(call->out[k], node, k);
    }
    ah_node_release(node);
    return status;
}

static int run_op(struct ah_node *node, struct ah_rule *rule)
{
    return node->op->backward(rule);
}

static const struct ah_node_class op_class = {.run = run_op};

int ah_record_custom(const struct ah_node_class *class, void *context, struct ah_tensor **inputs, int input_count,
                     struct ah_tensor **outputs, int output_count)
{
    struct ah_node *node = node_new(class, NULL, input_count, output_count);
    if (!node)
        return ah_fail(AH_ENOMEM, "out of memory");
    node->context = context;
    int status = 0, index = 0;
    while (status == 0 && index < input_count)
        status = add_input(node, &index, inputs[index]);
    for (int k = 0; status == 0 && k < output_count; k++) {
        describe(&node->output[k], outputs[k]);
        if (ah_dtype_is_float(outputs[k]->dtype))
            status = set_history(outputs[k], node, k);
    }
    ah_node_release(node);
    return status;
}

/* --- hooks --- */

int ah_add_hook(struct ah_tensor *tensor, struct ah_hook *hook)
{
    if (!ah_requires_grad(tensor)) {
        hook->free(hook);
        return ah_fail(AH_EINVAL, "register_hook: the tensor does not require grad");
    }
    struct ah_edge edge;
    struct ah_node *owned;
    int status = ah_gradient_edge(tensor, &edge, &owned);
    if (status < 0) {
        hook->free(hook);
        return status;
    }
    struct ah_hook **last = tensor->grad->fn ? &tensor->grad->fn->hooks : &tensor->grad->hooks;
    hook->output = edge.output;
    hook->next = NULL;
    while (*last)
        last = &(*last)->next;
    *last = hook;
    ah_node_release(owned);
    return 0;
}

void ah_remove_hook(struct ah_tensor *tensor, int id)
{
    if (!tensor->grad)
        return;
    struct ah_hook **at = tensor->grad->fn ? &tensor->grad->fn->hooks : &tensor->grad->hooks;
    for (; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            struct ah_hook *found = *at;
            *at = found->next;
            found->free(found);
            return;
        }
    }
}

static void free_hook(struct ah_hook *hook)
{
    free(hook);
}

int ah_retain_grad(struct ah_tensor *tensor)
{
    if (ah_is_leaf(tensor) || tensor->grad->retain_grad)
        return 0;
    struct ah_hook *hook = calloc(1, sizeof *hook);
    if (!hook)
        return ah_fail(AH_ENOMEM, "out of memory");
    hook->id = -1;
    hook->call = keep_grad;
    hook->free = free_hook;
    hook->context = tensor->grad;
    tensor->grad->retain_grad = true;
    return ah_add_hook(tensor, hook);
}

static void release_meta(struct ah_grad_meta *meta)
{
    forget_retained(meta);
    meta_free(meta);
}

void ah_autograd_open(void)
{
    static const struct ah_recorder recorder = {wanted, before_inplace, record, track_view};
    ah_recorder = &recorder;
    ah_tensor_release_grad = release_meta;
}
