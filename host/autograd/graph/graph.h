/* The recorded graph: nodes, edges, and the autograd state of tensors.
 *
 * One node per differentiable op. A node holds its inputs' nodes (edges), a tensor holds the node that made it, so
 * a graph lives as long as some result of it. Saved tensors are dropped when backward consumes the node (unless
 * retain_graph) and checked against their storage's version first. Freeing is iterative. Lua thread only.
 *
 * Circle: anomaly, apply, graph, hook, leaf, node, recompute, rule, rules, view: a view is remade by running rules, a
 * rule calls ops, an op records nodes, and nodes own hooks and calls to repeat. */
#pragma once

#include "autograd/graph/recompute.h"
#include "autograd/graph/rule.h"
#include "ops/dispatch/op.h"

struct ah_run; /* one execution of the engine */

/* Functions of a kind of node: an op's rule, a leaf's accumulation, or foreign code (a function written in Lua). */
struct ah_node_class {
    const char *name;                                        /* NULL: the op's name */
    int (*run)(struct ah_node *node, struct ah_rule *rule);  /* fills rule->grad_in */
    void (*drop_saved)(struct ah_node *node);                /* frees saved values; may be NULL */
    void (*free)(struct ah_node *node);                      /* frees the context; may be NULL */
};

struct ah_edge {
    struct ah_node *node; /* NULL: no gradient wanted */
    int output;
};

/* A gradient hook: may replace *grad (release the old, store the new). Counted: the list it is in holds one
 * reference, its maker another. */
struct ah_hook {
    int refs;    /* 1 from its maker */
    int output;  /* of the node; set by ah_add_hook */
    bool keeper; /* retain_grad's: called after all others */
    int (*call)(struct ah_hook *hook, struct ah_tensor **grad);
    void (*free)(struct ah_hook *hook); /* with the last reference: frees the context and the hook */
    void *context;
    struct ah_hook *next, **at; /* in its list; at NULL: in none */
};

struct ah_saved {
    struct ah_tensor *tensor;
    struct ah_recompute *recompute; /* instead of a tensor: it is computed before the rule runs, ... */
    int input;                      /* ... as input number `input` of the node */
    uint32_t version;
};

struct ah_node {
    int refs;
    int input_count, output_count;
    uint64_t sequence; /* later nodes run first */
    const struct ah_node_class *class;
    const struct ah_op *op;
    void *context;
    struct ah_edge *edge;             /* [input_count] */
    struct ah_input_meta *input;      /* [input_count] */
    struct ah_input_meta *output;     /* [output_count] */
    struct ah_value *arg;             /* [op->param_count], tensors only where saved */
    struct ah_saved *saved_arg;       /* [op->param_count] */
    struct ah_saved saved_out[AH_MAX_OUTS];
    struct ah_tensor *extra[AH_MAX_EXTRA];
    union ah_state state;
    bool consumed;
    uint8_t size_class; /* of its memory, for the file that frees it */
    char *site; /* the script line of the op, where anomaly mode was on; owned */
    struct ah_hook *hooks;
    struct ah_run *run; /* the engine's bookkeeping: which execution visits this node, and its place there */
    int run_index;
    struct ah_node *next_freed;
};

/* The autograd state of a tensor. */
struct ah_grad_meta {
    bool requires_grad;     /* of a leaf; results have fn instead */
    struct ah_hook *keeper; /* stores the gradient of a result in `grad` (retain_grad); a reference */
    int output;
    struct ah_node *fn;          /* the node that made this tensor; NULL for a leaf */
    struct ah_node *accumulator; /* a leaf's node, not owned */
    struct ah_tensor *grad;
    struct ah_recompute *recompute; /* the call that repeats it, or NULL */
    struct ah_tensor *base; /* this tensor is a differentiable view of `base` (itself no view) ... */
    uint32_t base_version;  /* ... and `fn` is true for this version; later in-place writes remake it */
    struct ah_hook *hooks;  /* of a leaf */
    /* A prepared parameter accumulates into its slot of the gradient arena, which *has_grad guards; ready() notifies
     * the reducer that the gradient is final for this backward. */
    struct ah_tensor *slot;
    bool *has_grad;
    void (*ready)(void *context, int index);
    void *ready_context;
    int ready_index;
};

/* Are ops recorded? On at first. Read it, but change it by the two below. */
extern bool ah_grad_enabled;
/* Switch it; returns the previous mode. */
bool ah_grad_switch(bool on);
/* Switch it up to the end of the block, however that is left but by a Lua error; one a block. */
#define AH_GRAD_SCOPE(on) \
    bool ah_grad_before __attribute__((cleanup(ah_grad_restore), unused)) = ah_grad_switch(on)
static inline void ah_grad_restore(const bool *before)
{
    ah_grad_switch(*before);
}

/* Connect autograd to the op door and to tensors; once, at start-up. */
void ah_autograd_open(void);

struct ah_grad_meta *ah_grad_meta(struct ah_tensor *tensor); /* made on first use; NULL only when out of memory */

/* Do gradients flow to it? A leaf is a tensor that no op with a gradient made. */
bool ah_requires_grad(const struct ah_tensor *tensor);
bool ah_is_leaf(const struct ah_tensor *tensor);
/* AH_EINVAL for integer tensors and for results (use detach). */
int ah_set_requires_grad(struct ah_tensor *tensor, bool on);

/* Make it a leaf without history that requires no gradient; a view shares its memory as before, but cannot be written
 * in place with gradients on. */
void ah_detach(struct ah_tensor *tensor);

/* The gradient of a leaf (or retained result): borrowed, NULL when there is none. */
struct ah_tensor *ah_grad(const struct ah_tensor *tensor);
/* Replace it (NULL clears). AH_EINVAL unless shape and dtype agree. For a prepared parameter the value is copied
 * into the slot. */
int ah_set_grad(struct ah_tensor *tensor, struct ah_tensor *grad);

/* Set a leaf's slot of the gradient arena, or remove it (slot NULL). An existing gradient is moved into the slot; on
 * removal a gradient in the slot stays the leaf's and keeps the slot's memory. Removal does not fail. */
int ah_set_grad_slot(struct ah_tensor *leaf, struct ah_tensor *slot, bool *has_grad,
                     void (*ready)(void *context, int index), void *context, int index);

/* Return the edge that receives this tensor's gradient: {NULL, 0} when none is needed. Records a stale view's node
 * again; AH_ENOMEM or an error of the view op. The node is borrowed, except that a new accumulator is returned with one
 * reference in *owned (release it after retaining your own). */
int ah_gradient_edge(struct ah_tensor *tensor, struct ah_edge *out, struct ah_node **owned);

/* Record a node of foreign code with these inputs; outputs[k] become its results. Its class->free frees `context`; on
 * failure the caller keeps it. */
int ah_record_custom(const struct ah_node_class *class, void *context, struct ah_tensor **inputs, int input_count,
                     struct ah_tensor **outputs, int output_count);

/* The sequence number that the next node will have. */
uint64_t ah_next_sequence(void);

/* Hang a hook on a tensor's gradient, after those already there: on the node of a result, so that a later in-place
 * write leaves it with the value it was made for. AH_EINVAL when the tensor does not require grad. */
int ah_add_hook(struct ah_tensor *tensor, struct ah_hook *hook);
void ah_remove_hook(struct ah_hook *hook); /* off its list, if it is in one */
struct ah_hook *ah_hook_retain(struct ah_hook *hook);
void ah_hook_release(struct ah_hook *hook);

/* Keep the gradient of a result, too; it follows the tensor through in-place writes. AH_EINVAL when the tensor does
 * not require grad. */
int ah_retain_grad(struct ah_tensor *tensor);

const char *ah_node_name(const struct ah_node *node); /* "MulBackward" style is the printer's; this is "mul" */
void ah_node_retain(struct ah_node *node);
void ah_node_release(struct ah_node *node);
/* Free the node's saved values; true when there were any, without which it cannot run again. */
bool ah_node_drop_saved(struct ah_node *node);
