/* The numbers of a replay. */
#include "cuda/kernels/lib/kernel.cuh"
#include "cuda/kernels/optim_loss/graph.h"

AH_KERNEL(graph_write, ah_graph_write_args, AH_GRAPH_THREADS)
{
    for (uint32_t i = threadIdx.x; i < a.count; i += AH_GRAPH_THREADS)
        reinterpret_cast<uint32_t *>(a.to)[i] = a.word[i];
}
