/* Graphs of captured works (tensor/device.h specifies them). Lua thread only. */
#pragma once

#include "cuda/driver/api/device.h"

extern const struct ah_graph_functions ah_cuda_graphs;

/* Destroy the driver's objects of closed graphs. Waits for the device if there is any. */
void ah_cuda_graphs_sweep(struct ah_cuda_device *cuda);

/* Destroy the graphs that contain calls of a communicator: NCCL cannot end it before. */
struct ah_device_comm;
void ah_cuda_graphs_cut(struct ah_cuda_device *cuda, const struct ah_device_comm *comm);
