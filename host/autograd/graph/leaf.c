/* The gradient data of a tensor: the meta it gets on first use, leaves with their accumulators, .grad in place or in an
 * arena slot. Invariant: a leaf's accumulator is held by the graph alone and holds the leaf, so a leaf does not keep
 * itself alive. */
#include "autograd/graph/node.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/capture.h"

bool ah_grad_enabled = true;

bool ah_grad_switch(bool on)
{
    bool before = ah_grad_enabled;
    ah_grad_enabled = on;
    return before;
}

void ah_grad_meta_free(struct ah_grad_meta *meta)
{
    ah_forget_keeper(meta);
    ah_free_hooks(&meta->hooks);
    struct ah_tensor *grad = meta->grad, *base = meta->base, *slot = meta->slot;
    struct ah_node *fn = meta->fn;
    ah_recompute_release(meta->recompute);
    free(meta);
    ah_tensor_release(grad);
    ah_tensor_release(slot);
    ah_tensor_release(base);
    ah_node_release(fn);
}

struct ah_grad_meta *ah_grad_meta(struct ah_tensor *tensor)
{
    if (!tensor->grad) {
        tensor->grad = malloc(sizeof *tensor->grad); /* calloc does not use glibc's cache of freed blocks */
        if (tensor->grad)
            memset(tensor->grad, 0, sizeof *tensor->grad);
    }
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
    return meta->base && meta->base_version != ah_tensor_version(tensor) && ah_requires_grad(meta->base);
}

bool ah_is_leaf(const struct ah_tensor *tensor)
{
    return !tensor->grad || (!tensor->grad->fn && (tensor->grad->requires_grad || !ah_requires_grad(tensor)));
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
    AH_TRY_MEMORY(meta, "out of memory");
    meta->requires_grad = on;
    return 0;
}

void ah_detach(struct ah_tensor *tensor)
{
    struct ah_grad_meta *meta = tensor->grad;
    if (!meta || !ah_requires_grad(tensor))
        return;
    ah_forget_keeper(meta);
    struct ah_node *fn = meta->fn;
    struct ah_tensor *base = ah_is_leaf(tensor) ? NULL : meta->base;
    if (base) {
        /* A write into it would not be heard of by the others that see its memory. */
        tensor->untracked = base->refs > 1 ? AH_UNTRACKED_GRAD : AH_TRACKED;
        meta->base = NULL;
    }
    meta->requires_grad = false;
    meta->fn = NULL;
    meta->output = 0;
    ah_node_release(fn);
    ah_tensor_release(base);
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
    AH_TRY_MEMORY(meta, "out of memory");
    if (grad && (!ah_same_shape(tensor, grad) || tensor->dtype != grad->dtype)) {
        return ah_fail(AH_EINVAL, "grad: expected %s %s, got %s %s", ah_dtype_name(tensor->dtype), ah_shape(tensor),
                       ah_dtype_name(grad->dtype), ah_shape(grad));
    }
    if (grad && grad->storage->device != tensor->storage->device)
        return ah_fail(AH_EINVAL, "grad: expected a tensor on %s, got one on %s", tensor->storage->device->name,
                       grad->storage->device->name);
    if (meta->slot) {
        *meta->has_grad = grad != NULL;
        if (!grad || grad == meta->slot)
            return 0;
        AH_GRAD_SCOPE(false);
        struct ah_tensor *copied;
        AH_TRY(ah_op1(AH_OP_copy_, &copied, AH_T(meta->slot), AH_T(grad)));
        ah_tensor_release(copied);
        return 0;
    }
    AH_TRY(ah_capture_leaf(tensor, meta->grad, true));
    ah_tensor_retain(grad);
    ah_tensor_release(meta->grad);
    meta->grad = grad;
    return 0;
}

int ah_set_grad_slot(struct ah_tensor *leaf, struct ah_tensor *slot, bool *has_grad,
                     void (*ready)(void *context, int index), void *context, int index)
{
    struct ah_grad_meta *meta = ah_grad_meta(leaf);
    AH_TRY_MEMORY(meta, "out of memory");
    struct ah_tensor *old = ah_tensor_retain(ah_grad(leaf));
    ah_tensor_release(meta->grad);
    ah_tensor_release(meta->slot);
    meta->grad = NULL;
    meta->slot = ah_tensor_retain(slot);
    meta->has_grad = has_grad;
    meta->ready = ready;
    meta->ready_context = context;
    meta->ready_index = index;
    if (!slot) {
        meta->grad = old;
        return 0;
    }
    int status = ah_set_grad(leaf, old);
    ah_tensor_release(old);
    return status;
}

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

int ah_leaf_edge(struct ah_tensor *leaf, struct ah_edge *out, struct ah_node **owned)
{
    struct ah_grad_meta *meta = leaf->grad;
    if (!meta->accumulator) {
        struct ah_node *node = ah_node_new(&ah_accumulate_class, NULL, 0, 1);
        AH_TRY_MEMORY(node, "out of memory");
        node->sequence = UINT64_MAX; /* run as soon as all uses have contributed */
        node->context = ah_tensor_retain(leaf);
        ah_describe(&node->output[0], leaf);
        meta->accumulator = node;
        *owned = node;
    }
    *out = (struct ah_edge){meta->accumulator, 0};
    return 0;
}

int ah_gradient_edge(struct ah_tensor *tensor, struct ah_edge *out, struct ah_node **owned)
{
    struct ah_grad_meta *meta = tensor->grad;
    *owned = NULL;
    *out = (struct ah_edge){NULL, 0};
    if (!meta)
        return 0;
    if (meta->base && meta->base_version != ah_tensor_version(tensor) && ah_requires_grad(meta->base))
        AH_TRY(ah_remake_view(tensor));
    if (meta->fn)
        *out = (struct ah_edge){meta->fn, meta->output};
    else if (meta->requires_grad)
        return ah_leaf_edge(tensor, out, owned);
    return 0;
}
