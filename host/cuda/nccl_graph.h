/* Collectives in captured steps. A lane's stream joins the capture by the events of its calls, so NCCL's works become
 * nodes of the graph; a replay is one call of each group, which its ranks make together. Lua thread only.
 *
 * Circle: graph, nccl_graph, nccl_group, nccl_message: a graph asks lanes when it is captured and replayed, a lane that
 * ends has its graphs end first; the type of lanes names the functions for messages, and those open lanes. */
#ifndef AH_CUDA_NCCL_GRAPH_H
#define AH_CUDA_NCCL_GRAPH_H

#include "cuda/device.h"

enum { AH_NCCL_GRAPH_LANES = 8 };
struct ah_nccl_lane;

/* The lanes whose calls a graph holds; they outlive it (ah_cuda_graphs_cut). */
struct ah_nccl_calls {
    struct ah_nccl_lane *lane[AH_NCCL_GRAPH_LANES];
    int count;
};

/* A lane is given a call while a step is captured. */
int ah_nccl_calls_add(struct ah_nccl_lane *lane);
bool ah_nccl_calls_have(const struct ah_nccl_calls *calls, const struct ah_nccl_lane *lane);
/* Before the end of a capture: the compute stream waits for what lanes were given in it. */
int ah_nccl_calls_end(struct ah_cuda_device *cuda, struct ah_nccl_calls *calls);
/* Before a replay: the ranks of each group come together, and what its lane was given comes before the graph. */
int ah_nccl_calls_meet(struct ah_cuda_device *cuda, const struct ah_nccl_calls *calls);
/* After it: what its lane is given next comes behind the graph, whose end the watch looks for. */
int ah_nccl_calls_note(struct ah_cuda_device *cuda, const struct ah_nccl_calls *calls);

#endif
