/* Running backward. */
#pragma once

#include "autograd/graph/graph.h"

struct ah_backward_options {
    bool retain_graph; /* keep saved tensors for a second backward; implied by create_graph */
    bool create_graph; /* record the rules themselves, for higher derivatives */
    bool allow_unused; /* ah_gradients: the gradient of an input that no root depends on is NULL, not an error */
};

/* Accumulate d(sum of roots . grads)/d(leaf) into every leaf's gradient. grads[i] NULL means 1 for a root with one
 * element, else AH_EINVAL. Refused while create_graph meets a leaf with an arena slot. */
int ah_backward(struct ah_tensor **roots, struct ah_tensor **grads, int count,
                const struct ah_backward_options *options);

/* Call `found` for each leaf that a backward from these roots would reach; nothing is computed or consumed. */
int ah_backward_leaves(struct ah_tensor **roots, int count, void (*found)(void *context, struct ah_tensor *leaf),
                       void *context);

/* The gradients with respect to `inputs` (new references in out, NULL for unused), touching no .grad. */
int ah_gradients(struct ah_tensor **roots, struct ah_tensor **grads, int count, struct ah_tensor **inputs,
                 int input_count, struct ah_tensor **out, const struct ah_backward_options *options);

/* The same at edges instead of tensors, for a node that represents a part of the graph recorded since `since`: the
 * traversal stops at the edges, and older nodes that it meets keep their saved values. NULL: no gradient
 * arrived. */
int ah_gradients_at(struct ah_tensor **roots, struct ah_tensor **grads, int count, const struct ah_edge *edges,
                    int edge_count, uint64_t since, struct ah_tensor **out,
                    const struct ah_backward_options *options);

/* Make one node the history of all `outputs` (results of fn, for example) that were recorded since `since`, in place of
 * the pieces of graph that made them: its inputs are the edges that led out of those pieces, its output k is
 * outputs[k]. Others keep their history (their gradients never arrive here); when all are such, nothing is made and
 * *recorded is false. `context` as above, unless recorded. */
int ah_record_segment(const struct ah_node_class *class, void *context, uint64_t since, struct ah_tensor **outputs,
                      int output_count, bool *recorded);

/* A callback between nodes while a backward runs, in which pending collectives make progress. The caller owns the
 * struct, which must stay valid until it is removed; the callback must not add or remove watchers. Lua thread only. */
struct ah_engine_watcher {
    void (*between)(void *context);
    void *context;
    struct ah_engine_watcher *next;
};
void ah_engine_watch(struct ah_engine_watcher *watcher);
void ah_engine_unwatch(struct ah_engine_watcher *watcher);
