#include "autograd/node.h"

#include <stdlib.h>

void ah_free_hooks(struct ah_hook *hook)
{
    while (hook) {
        struct ah_hook *next = hook->next;
        hook->free(hook);
        hook = next;
    }
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
void ah_forget_retained(struct ah_grad_meta *meta)
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
