/* One node in the place of a piece of graph (checkpointing). The piece is traversed from its results down to the edges
 * that lead out of it, which become the node's inputs; then the results point to the node, and the piece is freed with
 * everything it saved. Invariant: every path from the results to earlier nodes passes one of the node's edges. */
#include <stdlib.h>

#include "autograd/engine/engine.h"
#include "autograd/engine/run.h"
#include "autograd/graph/node.h"
#include "base/memory/array.h"

struct frontier {
    uint64_t since;
    struct ah_edge *edge;
    int count;
    size_t room;
};

static bool segment_inside(const struct frontier *frontier, const struct ah_node *node)
{
    return node->sequence >= frontier->since && node->class != &ah_accumulate_class;
}

static int add_edge(struct frontier *frontier, const struct ah_edge *edge)
{
    for (int i = 0; i < frontier->count; i++)
        if (frontier->edge[i].node == edge->node && frontier->edge[i].output == edge->output)
            return 0;
    AH_TRY(ah_grow(&frontier->edge, (size_t)frontier->count + 1, &frontier->room, sizeof *edge));
    frontier->edge[frontier->count++] = *edge;
    return 0;
}

/* Every node inside, each once: the visits of `run` are the queue. */
static int segment_traverse(struct frontier *frontier, struct ah_run *run)
{
    for (int i = 0; i < run->count; i++) {
        struct ah_node *node = run->visit[i].node;
        for (int k = 0; k < node->input_count; k++) {
            const struct ah_edge *edge = &node->edge[k];
            if (!edge->node)
                continue;
            if (segment_inside(frontier, edge->node))
                AH_TRY(ah_run_visit(run, edge->node));
            else
                AH_TRY(add_edge(frontier, edge));
        }
    }
    return 0;
}

static const struct ah_node *made_inside(const struct frontier *frontier, const struct ah_tensor *output)
{
    const struct ah_node *node = output->grad ? output->grad->fn : NULL;
    return node && segment_inside(frontier, node) ? node : NULL;
}

static int segment_connect(const struct ah_node_class *class, void *context, const struct frontier *frontier,
                           struct ah_tensor **outputs, int output_count)
{
    struct ah_node *node = ah_node_new(class, NULL, frontier->count, output_count);
    AH_TRY_MEMORY(node, "out of memory");
    for (int i = 0; i < frontier->count; i++) {
        node->edge[i] = frontier->edge[i];
        ah_node_retain(node->edge[i].node);
        node->input[i] = node->edge[i].node->output[node->edge[i].output];
    }
    int status = 0;
    for (int k = 0; k < output_count; k++)
        ah_describe(&node->output[k], outputs[k]);
    for (int k = 0; k < output_count && status == 0; k++)
        if (made_inside(frontier, outputs[k]))
            status = ah_set_history(outputs[k], node, k);
    if (status == 0)
        node->context = context; /* on failure it stays with the caller */
    ah_node_release(node);
    return status;
}

int ah_record_segment(const struct ah_node_class *class, void *context, uint64_t since, struct ah_tensor **outputs,
                      int output_count, bool *recorded)
{
    struct frontier frontier = {.since = since};
    struct ah_run run = {.options = NULL};
    int status = 0;
    *recorded = false;
    for (int k = 0; k < output_count; k++) {
        /* A view whose base was written gets its true history now. */
        struct ah_edge edge;
        struct ah_node *owned;
        AH_TRYGO(ah_gradient_edge(outputs[k], &edge, &owned), out);
        ah_node_release(owned);
        if (!made_inside(&frontier, outputs[k]))
            continue;
        status = ah_run_visit(&run, outputs[k]->grad->fn);
        if (status < 0)
            goto out;
    }
    AH_TRYGO(segment_traverse(&frontier, &run), out);
    if (run.count > 0) {
        AH_TRYGO(segment_connect(class, context, &frontier, outputs, output_count), out);
        *recorded = true;
    }
out:
    ah_run_close(&run);
    free(frontier.edge);
    return status;
}
