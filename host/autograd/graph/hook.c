/* Hooks: lists of callbacks on a node (for results) or on a leaf. A list is snapshot before it is called, each hook
 * held by the snapshot, so that a hook may add and remove any hook, free its tensor, or start another backward: hooks
 * removed meanwhile still run this once, added ones do not, as in PyTorch. Keepers (retain_grad) are at the end of a
 * list, so that .grad is the result of all other hooks. Invariants: a hook in a list has `at` set; a keeper's context
 * is NULL once its tensor is freed. */
#include <stdlib.h>

#include "autograd/graph/node.h"

static void hook_release(struct ah_hook *hook)
{
    if (--hook->refs > 0)
        return;
    hook->free(hook);
}

struct ah_hook *ah_hook_retain(struct ah_hook *hook)
{
    hook->refs++;
    return hook;
}

void ah_hook_release(struct ah_hook *hook)
{
    if (hook)
        hook_release(hook);
}

static void link_hook(struct ah_hook **list, struct ah_hook *hook)
{
    while (*list && (hook->keeper || !(*list)->keeper))
        list = &(*list)->next;
    hook->next = *list;
    hook->at = list;
    if (hook->next)
        hook->next->at = &hook->next;
    *list = hook;
}

static void unlink_hook(struct ah_hook *hook)
{
    *hook->at = hook->next;
    if (hook->next)
        hook->next->at = hook->at;
    hook->at = NULL;
    hook->next = NULL;
}

void ah_remove_hook(struct ah_hook *hook)
{
    if (!hook->at)
        return;
    unlink_hook(hook);
    hook_release(hook);
}

void ah_free_hooks(struct ah_hook **list)
{
    while (*list)
        ah_remove_hook(*list);
}

int ah_call_hooks(struct ah_hook *first, struct ah_tensor **grad)
{
    enum { FEW = 16 };
    struct ah_hook *few[FEW], **list = few;
    int count = 0, status = 0;
    if (!first)
        return 0;
    for (const struct ah_hook *hook = first; hook; hook = hook->next)
        count++;
    if (count > FEW)
        list = malloc((size_t)count * sizeof(struct ah_hook *));
    AH_TRY_MEMORY(list, "out of memory");
    for (int i = 0; i < count; i++, first = first->next)
        list[i] = ah_hook_retain(first);
    for (int i = 0; i < count; i++) {
        if (status == 0 && grad[list[i]->output])
            status = list[i]->call(list[i], &grad[list[i]->output]);
        hook_release(list[i]);
    }
    if (list != few)
        free(list);
    return status;
}

int ah_add_hook(struct ah_tensor *tensor, struct ah_hook *hook)
{
    struct ah_edge edge;
    struct ah_node *owned;
    if (!ah_requires_grad(tensor))
        return ah_fail(AH_EINVAL, "register_hook: the tensor does not require grad");
    AH_TRY(ah_gradient_edge(tensor, &edge, &owned));
    hook->output = edge.output;
    link_hook(tensor->grad->fn ? &tensor->grad->fn->hooks : &tensor->grad->hooks, ah_hook_retain(hook));
    ah_node_release(owned);
    return 0;
}

static int keep_grad(struct ah_hook *hook, struct ah_tensor **grad)
{
    struct ah_grad_meta *meta = hook->context;
    if (!meta)
        return 0;
    ah_tensor_retain(*grad);
    ah_tensor_release(meta->grad);
    meta->grad = *grad;
    return 0;
}

static void free_keeper(struct ah_hook *hook)
{
    free(hook);
}

void ah_forget_keeper(struct ah_grad_meta *meta)
{
    struct ah_hook *keeper = meta->keeper;
    if (!keeper)
        return;
    meta->keeper = NULL;
    keeper->context = NULL;
    ah_remove_hook(keeper);
    hook_release(keeper);
}

void ah_move_keeper(struct ah_grad_meta *meta, struct ah_node *node, int output)
{
    struct ah_hook *keeper = meta->keeper;
    if (!keeper)
        return;
    if (keeper->at) /* else its old node was freed, and with it the list's reference */
        unlink_hook(keeper);
    else
        ah_hook_retain(keeper);
    keeper->output = output;
    link_hook(&node->hooks, keeper);
}

int ah_retain_grad(struct ah_tensor *tensor)
{
    if (!ah_requires_grad(tensor))
        return ah_fail(AH_EINVAL, "retain_grad: the tensor does not require grad");
    if (ah_is_leaf(tensor) || tensor->grad->keeper)
        return 0;
    struct ah_hook *hook = calloc(1, sizeof *hook);
    AH_TRY_MEMORY(hook, "out of memory");
    hook->refs = 1;
    hook->keeper = true;
    hook->call = keep_grad;
    hook->free = free_keeper;
    hook->context = tensor->grad;
    int status = ah_add_hook(tensor, hook);
    if (status < 0) {
        hook_release(hook);
        return status;
    }
    tensor->grad->keeper = hook;
    return 0;
}
