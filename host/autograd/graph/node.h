/* Internal declarations of the graph's files; other files include graph.h. */
#pragma once

#include "autograd/graph/graph.h"
#include "base/status/status.h"

/* A node with room for its edges and arguments, in one block; NULL when out of memory. */
struct ah_node *ah_node_new(const struct ah_node_class *class, const struct ah_op *op, int inputs, int outputs);

/* Make `tensor` input number *index: its edge and its shape. Advances *index. */
int ah_node_add_input(struct ah_node *node, int *index, struct ah_tensor *tensor);

/* Store a tensor's shape and dtype, which its gradient must have. */
void ah_describe(struct ah_input_meta *meta, const struct ah_tensor *tensor);

/* Same window on the same storage, with no history: keeps values without keeping the graph. */
int ah_alias(struct ah_tensor **out, const struct ah_tensor *tensor);

/* Does this one reference hold all there is of the tensor's memory, so that a write into it goes unseen? */
bool ah_exclusive(const struct ah_tensor *tensor);

/* Run one node's rule with given output gradients (NULL entries allowed); grad_in gets new references, *place is the
 * slice of input 0 that grad_in[0] is of. `last`: the node's saved values are freed afterwards. `into`: as a rule's. */
int ah_run_rule(struct ah_node *node, bool last, struct ah_tensor **grad_out, struct ah_destination *into,
                struct ah_tensor **grad_in, struct ah_slice *place);

/* The class of a leaf's node; the engine itself does its work. */
extern const struct ah_node_class ah_accumulate_class;

/* The edge to a leaf's accumulator, which is made (and returned in *owned) if there is none. */
int ah_leaf_edge(struct ah_tensor *leaf, struct ah_edge *out, struct ah_node **owned);

/* The tensor is output `output` of the node from now on. */
int ah_set_history(struct ah_tensor *tensor, struct ah_node *node, int output);

/* A view whose base was written in place since: its node becomes the base's history seen through the view. */
int ah_remake_view(struct ah_tensor *view);

/* After `inner` wrote into a view: record a node on the view's base that passes the slice's gradient through
 * `inner`. */
int ah_rebase_view(struct ah_tensor *view, struct ah_node *inner);

/* Free a tensor's autograd part. */
void ah_grad_meta_free(struct ah_grad_meta *meta);

/* Remove all hooks from a list. */
void ah_free_hooks(struct ah_hook **list);

/* Call the hooks of a list as it is now on the present gradients; grad[k] belongs to output k. */
int ah_call_hooks(struct ah_hook *first, struct ah_tensor **grad);

/* Remove retain_grad's hook, or move it to the tensor's new node. */
void ah_forget_keeper(struct ah_grad_meta *meta);
void ah_move_keeper(struct ah_grad_meta *meta, struct ah_node *node, int output);
