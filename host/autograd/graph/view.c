/* Views in autograd: in-place writes into a view add a node to its base; other views then remake theirs. */
#include "autograd/graph/node.h"

#include <stdlib.h>

/* The base was written in place since this view was made: its node is the base's history seen through the view. */
int ah_remake_view(struct ah_tensor *view)
{
    struct ah_grad_meta *meta = view->grad;
    AH_OWNED struct ah_tensor *fresh = NULL;
    AH_GRAD_SCOPE(true);
    AH_TRY(ah_op1(AH_OP_as_strided, &fresh, AH_T(meta->base), AH_INTS_OF(view->size, view->ndim),
                  AH_INTS_OF(view->stride, view->ndim), AH_I(view->offset)));
    int status = ah_set_history(view, fresh->grad->fn, 0);
    meta->base_version = ah_tensor_version(view);
    return status;
}

struct copy_slices {
    struct ah_node *inner; /* the op on the slice */
    struct ah_tensor *geometry, *base; /* strides and offsets of slice and base; values unused */
};

/* Copy the base's gradient to a new storage, with the base's strides and offset. */
static struct ah_tensor *like_base(struct ah_rule *rule, const struct ah_tensor *base)
{
    if (ah_tensor_is_contiguous(base))
        return ah_r(rule, AH_OP_clone, AH_T(rule->grad_out[0]));
    int64_t extent = 1;
    for (int d = 0; d < base->ndim; d++)
        extent = base->size[d] ? extent + (base->size[d] - 1) * base->stride[d] : extent;
    struct ah_tensor *flat = ah_r(rule, AH_OP_zeros, AH_INTS_OF(&extent, 1), AH_D(base->dtype),
                                  AH_DEV(base->storage->device));
    struct ah_tensor *grad = ah_r(rule, AH_OP_as_strided, AH_T(flat), AH_INTS_OF(base->size, base->ndim),
                                  AH_INTS_OF(base->stride, base->ndim), AH_I(0));
    ah_r(rule, AH_OP_copy_, AH_T(grad), AH_T(rule->grad_out[0]));
    return grad;
}

static int run_copy_slices(struct ah_node *node, struct ah_rule *rule)
{
    struct copy_slices *slices = node->context;
    const struct ah_tensor *g = slices->geometry;
    struct ah_tensor *grad = like_base(rule, slices->base);
    struct ah_tensor *window = ah_r(rule, AH_OP_as_strided, AH_T(grad), AH_INTS_OF(g->size, g->ndim),
                                    AH_INTS_OF(g->stride, g->ndim), AH_I(g->offset - slices->base->offset));
    struct ah_tensor *inner_grad = ah_r(rule, AH_OP_clone, AH_T(window));
    if (!inner_grad)
        return rule->status;
    struct ah_tensor *inner_in[AH_MAX_ARGS]; /* no op that writes accepts a list, */
    struct ah_slice place;                   /* and none is a view */
    AH_TRY(ah_run_rule(slices->inner, false, &inner_grad, NULL, inner_in, &place));
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
    /* Higher derivatives may hold the inner node as a separate node, which then runs later than this one. */
    if (slices && slices->inner && slices->inner->refs == 1)
        ah_node_drop_saved(slices->inner);
}

static void copy_slices_free(struct ah_node *node)
{
    struct copy_slices *slices = node->context;
    if (!slices)
        return;
    ah_node_release(slices->inner);
    ah_tensor_release(slices->geometry);
    ah_tensor_release(slices->base);
    free(slices);
}

static const struct ah_node_class copy_slices_class = {
    .name = "copy_slices", .run = run_copy_slices, .drop_saved = copy_slices_drop, .free = copy_slices_free};

int ah_rebase_view(struct ah_tensor *view, struct ah_node *inner)
{
    struct ah_tensor *base = view->grad->base;
    struct ah_node *node = ah_node_new(&copy_slices_class, NULL, inner->input_count, 1);
    struct copy_slices *slices = calloc(1, sizeof *slices);
    int status = 0;
    if (!node || !slices) {
        ah_node_release(node);
        free(slices);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    node->context = slices;
    ah_node_retain(inner);
    slices->inner = inner;
    AH_TRYGO(ah_alias(&slices->geometry, view), out);
    AH_TRYGO(ah_alias(&slices->base, base), out);
    int index = 0;
    AH_TRYGO(ah_node_add_input(node, &index, base), out);
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
    ah_describe(&node->output[0], base);
    AH_TRYGO(ah_set_history(base, node, 0), out);
    AH_TRYGO(ah_remake_view(view), out);
    view->grad->base_version++; /* true for the write about to be counted, and for this view only */
out:
    ah_node_release(node);
    return status;
}
