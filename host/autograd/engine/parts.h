/* Gradients of slices of a tensor. The rule of a slicing view (narrow, select) returns the slice's gradient with its
 * place instead of a gradient of the whole tensor that is zero elsewhere. The engine collects the slices of a tensor
 * until all have arrived. Where they cover it, its gradient is made of them: without a copy if they are contiguous in
 * memory, as attention stores those of a packed query, key and value, else by cat. Overlapping slices, and slices in
 * addition to a gradient of the whole, are added into one gradient in the order of their arrival. */
#pragma once

#include "autograd/graph/graph.h"

/* The gradient of a slice: retained. */
struct ah_part {
    struct ah_tensor *grad;
    struct ah_slice place;
    int arrival; /* the number of its predecessors */
};

/* Those of one output of a node. */
struct ah_parts {
    struct ah_part *at;
    int count;
    size_t room;
    int64_t numel;
};

/* One node in one execution. */
struct ah_visit {
    struct ah_node *node;    /* retained */
    int waiting;             /* edges into it that have not delivered yet */
    int cursor;              /* next edge of the depth-first search */
    bool visited;            /* the search has reached it */
    bool wanted;             /* its gradient is asked for (run->wanted) */
    bool needed;             /* leads to something wanted */
    bool written;            /* a leaf's: a rule has stored a gradient in its slot (destination.h) */
    struct ah_tensor **grad; /* [output_count], gradients that have arrived; NULL before ah_run_start */
    struct ah_parts *parts;  /* [output_count], gradients that have arrived for slices (parts.h); NULL while none has */
    struct ah_run *outer;    /* the execution this one interrupts, for nodes both visit */
    int outer_index;
};

/* A slice's gradient (borrowed) has arrived at output `output` of the visit. */
int ah_parts_add(struct ah_visit *visit, int output, struct ah_tensor *grad, struct ah_slice place);

/* Make visit->grad[output] of the slices that have arrived, if any. */
int ah_parts_settle(struct ah_visit *visit, int output);
int ah_parts_settle_all(struct ah_visit *visit);

void ah_parts_free(struct ah_visit *visit);
