/* Following an input's edges to its leaf. Invariant: between the input and its leaf nothing but casts and transposes
 * changes the gradient, and no other reader sees it: no hook, no caller of autograd.grad, no check of anomalies. */
#include "autograd/engine/destination.h"

#include "autograd/engine/engine.h"
#include "autograd/graph/anomaly.h"
#include "autograd/graph/node.h"
#include "autograd/graph/rules.h"
#include "ops/math/linear.h"

/* A leaf, from an input of a node. */
struct path {
    struct ah_visit *leaf;
    bool turned; /* the input is the leaf's transpose */
    bool exact;  /* the gradient arrives as it is (struct ah_destination) */
};

static bool path_turns(const struct ah_node *node)
{
    const struct ah_args_transpose *arg = ah_args(node, transpose);
    return node->input[0].ndim == 2 && (arg->dim0.integer - arg->dim1.integer) % 2 != 0;
}

/* The visit of a node in this execution, which others may have interrupted; NULL: none. */
static struct ah_visit *path_visit(const struct ah_run *run, const struct ah_node *node)
{
    const struct ah_run *in = node->run;
    int index = node->run_index;
    while (in && in != run) {
        const struct ah_visit *visit = &in->visit[index];
        in = visit->outer;
        index = visit->outer_index;
    }
    return in ? &in->visit[index] : NULL;
}

/* Does no other gradient arrive at a node? */
static bool is_alone(const struct ah_visit *visit)
{
    return visit->waiting == 1 && !visit->grad[0] && !visit->parts;
}

/* The sum of the gradients that have arrived at a leaf, if another can be added to it in place. */
static struct ah_tensor *leaf_sum(const struct ah_visit *visit)
{
    struct ah_tensor *sum = visit->parts ? NULL : visit->grad[0];
    return sum && ah_exclusive(sum) && !sum->storage->channels_last ? sum : NULL;
}

/* Two gradients may be stored one after the other, since a + b is b + a; more of them, or an earlier sum in the slot,
 * would be added in another order. The first of more than two is not stored, nor are the others then. */
static bool leaf_is_exact(const struct ah_visit *visit, bool has_grad)
{
    if (visit->grad[0] || visit->parts)
        return false;
    return visit->waiting == 1 || (visit->waiting == 2 && !visit->written && !has_grad);
}

/* A segment's edge leads on in the execution of which the segment is a node. */
static bool path_follow(const struct ah_run *run, const struct ah_node *node, struct path *path)
{
    for (; node; node = node->edge[0].node) {
        struct ah_visit *visit = path_visit(run, node);
        while (visit && visit->wanted) {
            path->exact = path->exact && is_alone(visit);
            run = run->of_segment ? visit->outer : NULL;
            visit = run ? path_visit(run, node) : NULL;
        }
        if (!visit || node->hooks || node->output_count != 1)
            return false;
        path->leaf = visit;
        if (node->class == &ah_accumulate_class)
            return !run->wanted;
        path->exact = path->exact && is_alone(visit);
        if (node->op && node->op->id == AH_OP_transpose && path_turns(node))
            path->turned = !path->turned;
        else if (!node->op || node->op->id != AH_OP_to)
            return false;
    }
    return false;
}

static bool destination_find(const struct ah_run *run, const struct ah_node *node, struct ah_destination *to)
{
    struct path path = {.exact = true};
    *to = (struct ah_destination){0};
    if (!node || !path_follow(run, node, &path))
        return false;
    const struct ah_tensor *leaf = path.leaf->node->context;
    const struct ah_grad_meta *meta = leaf->grad;
    struct ah_tensor *sum = leaf_sum(path.leaf), *slot = sum ? sum : meta->slot;
    if (!slot || meta->hooks || !meta->requires_grad)
        return false;
    if (!path.turned)
        to->slot = ah_tensor_retain(slot);
    else if (ah_turned(&to->slot, slot) < 0)
        return false;
    to->is_sum = sum != NULL;
    to->adds = sum || *meta->has_grad || path.leaf->written;
    to->exact = path.exact && (sum || leaf_is_exact(path.leaf, *meta->has_grad));
    return true;
}

struct ah_destination *ah_destinations_open(const struct ah_run *run, const struct ah_node *node,
                                            struct ah_destination room[AH_DESTINATIONS])
{
    bool any = false;
    if (!node->op || !(ah_rules[node->op->id].saves & AH_WRITES_SLOTS) || (run->wanted && !run->of_segment) ||
        run->options->create_graph || ah_anomaly.on || node->input_count > AH_DESTINATIONS)
        return NULL;
    for (int i = 0; i < node->input_count; i++)
        any = destination_find(run, node->edge[i].node, &room[i]) || any;
    return any ? room : NULL;
}

void ah_destinations_close(const struct ah_run *run, const struct ah_node *node, struct ah_destination *into)
{
    for (int i = 0; into && i < node->input_count; i++) {
        struct path path = {0};
        if (into[i].written && !into[i].is_sum && path_follow(run, node->edge[i].node, &path))
            path.leaf->written = true;
        ah_tensor_release(into[i].slot);
    }
}
