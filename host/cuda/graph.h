/* Graphs of works that were captured (tensor/device.h says what they promise). Lua thread only. */
#ifndef AH_CUDA_GRAPH_H
#define AH_CUDA_GRAPH_H

#include "cuda/device.h"

extern const struct ah_graph_functions ah_cuda_graphs;

/* Destroy what closed graphs have left at the driver. Waits for the device if there is any. */
void ah_cuda_graphs_sweep(struct ah_cuda_device *cuda);

#endif
