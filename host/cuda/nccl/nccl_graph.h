/* Collectives in captured steps. A communicator's stream joins the capture through the events of its calls, so NCCL's
 * kernels become nodes of the graph; a replay is one call of each group, which its ranks make together. Lua thread
 * only.
 *
 * Circle: nccl_graph, nccl_group, nccl_open: a call registers its communicator with the graph, the hooks check all
 * communicators, and the type of communicators has the functions that open one, which refer to the type. */
#ifndef AH_CUDA_NCCL_GRAPH_H
#define AH_CUDA_NCCL_GRAPH_H

#include "cuda/driver/api/collectives.h"

struct ah_nccl_comm;

/* The hooks for graphs and waits (driver/api/collectives.h). */
extern const struct ah_cuda_collectives ah_nccl_collectives;

/* Register a call of the communicator with the step being captured. AH_ESTATE beyond AH_CUDA_GRAPH_COMMS groups. */
int ah_nccl_graph_add(struct ah_nccl_comm *comm);

#endif
