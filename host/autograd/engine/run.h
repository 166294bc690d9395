/* One execution of a graph: the nodes that it visits, the order in which they become ready, the gradients that have
 * arrived at each.
 *
 * Discovery traverses from the roots without recursion and counts, for every node, the gradients that it waits for;
 * ready nodes are run latest first. Executions nest (a hook may start another backward): a node's `run` names the
 * innermost one that visits it, and ah_run_close hands it back to the one outside. */
#pragma once

#include "autograd/engine/parts.h"

struct ah_run {
    struct ah_visit *visit;
    int count;
    size_t room;
    int *heap; /* visits ready to run, latest sequence first */
    int heap_count;
    struct ah_tensor **grad; /* those of all visits, in one block; references owned */
    int *stack;
    const struct ah_backward_options *options; /* (engine.h) */
    const struct ah_edge *wanted; /* borrowed; NULL: every leaf accumulates into its .grad */
    int wanted_count;
    struct ah_tensor **captured; /* [wanted_count], owned by the caller */
    bool stop_at_wanted;         /* nodes before a wanted edge are not run */
    uint64_t keep_below;         /* nodes with a smaller sequence keep their saved values */
    bool of_segment; /* it computes the gradients of a node of the execution outside, at that node's edges */
};

/* The index of the node's visit, made when it has none; AH_ENOMEM. */
int ah_run_visit(struct ah_run *run, struct ah_node *node);

/* Mark the edges run->wanted; before the first ah_run_discover. */
int ah_run_want(struct ah_run *run);

/* Traverse all nodes reachable from the visit `root` that have not been traversed. */
int ah_run_discover(struct ah_run *run, int root);

/* Allocate the queue and the gradients of all visits; after discovery. AH_ENOMEM. */
int ah_run_start(struct ah_run *run);
void ah_run_push(struct ah_run *run, int index); /* this visit is ready */
int ah_run_pop(struct ah_run *run);              /* the latest ready one; heap_count must be above 0 */

/* Return the nodes to the execution outside, free everything but `captured`. */
void ah_run_close(struct ah_run *run);
