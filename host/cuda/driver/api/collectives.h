/* Hooks of the library that runs collectives on a device: waits and captured graphs call it without depending on it.
 * cuda/nccl registers NCCL's when it opens its first communicator. Lua thread only. */
#pragma once

#include "cuda/driver/api/device.h"

struct ah_device_comm;

/* The communicators whose calls a graph contains; they outlive it (ah_cuda_graphs_cut). */
enum { AH_CUDA_GRAPH_COMMS = 8 };
struct ah_cuda_graph_comms {
    struct ah_device_comm *comm[AH_CUDA_GRAPH_COMMS];
    int count;
};

struct ah_cuda_collectives {
    /* Return 0, or the failure of a collective on this device. Called after a wait for the device. */
    int (*check)(struct ah_cuda_device *cuda);
    /* Before a capture ends: fill `comms`, and make the compute stream wait for the collectives captured. */
    int (*end_capture)(struct ah_cuda_device *cuda, struct ah_cuda_graph_comms *comms);
    /* Before a replay: synchronise the ranks of each group, and order the collectives queued so far before the graph.
     */
    int (*before_replay)(struct ah_cuda_device *cuda, const struct ah_cuda_graph_comms *comms);
    /* After a replay: order the collectives that follow after the graph, and watch for its end. */
    int (*after_replay)(struct ah_cuda_device *cuda, const struct ah_cuda_graph_comms *comms);
};

/* The registered hooks; by default each succeeds and does nothing. */
extern const struct ah_cuda_collectives *ah_cuda_collectives;
