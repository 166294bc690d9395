/* The device must run the calls of one NCCL communicator in the same order on all ranks, inside a graph or not: calls
 * queued before a replay complete before it begins, and calls queued after it wait for its end. */
#include "cuda/nccl/nccl_graph.h"

#include "cuda/nccl/nccl_group.h"

int ah_nccl_graph_add(struct ah_nccl_comm *comm)
{
    int count = 0;
    for (const struct ah_nccl_comm *other = ah_nccl_watched(); other; other = other->next)
        count += other->capturing;
    if (!comm->capturing && count == AH_CUDA_GRAPH_COMMS)
        return ah_fail(AH_ESTATE, "a captured step has collectives of more than %d groups", AH_CUDA_GRAPH_COMMS);
    comm->capturing = comm->captured = true;
    return 0;
}

static int graph_end_capture(struct ah_cuda_device *cuda, struct ah_cuda_graph_comms *comms)
{
    int status = 0;
    comms->count = 0;
    for (struct ah_nccl_comm *comm = ah_nccl_watched(); comm; comm = comm->next) {
        if (comm->cuda != cuda || !comm->capturing)
            continue;
        comm->capturing = false;
        comms->comm[comms->count++] = &comm->base;
        status = status < 0 ? status : ah_nccl_order(cuda, comm->stream, cuda->compute);
    }
    return status;
}

static int graph_before_replay(struct ah_cuda_device *cuda, const struct ah_cuda_graph_comms *comms)
{
    for (int i = 0; i < comms->count; i++) {
        struct ah_nccl_comm *comm = (struct ah_nccl_comm *)comms->comm[i];
        struct ah_collective meeting = ah_collective_barrier();
        meeting.where = "a captured step";
        AH_TRY(ah_group_run(comm->base.group, meeting));
        AH_TRY(ah_nccl_order(cuda, comm->stream, cuda->compute));
    }
    return 0;
}

static int graph_after_replay(struct ah_cuda_device *cuda, const struct ah_cuda_graph_comms *comms)
{
    for (int i = 0; i < comms->count; i++) {
        struct ah_nccl_comm *comm = (struct ah_nccl_comm *)comms->comm[i];
        AH_TRY(ah_nccl_order(cuda, cuda->compute, comm->stream));
        pthread_mutex_lock(&comm->lock);
        int status = comm->handle ? ah_nccl_note(comm, comm->base.group->posted) : 0;
        pthread_mutex_unlock(&comm->lock);
        AH_TRY(status);
    }
    return 0;
}

const struct ah_cuda_collectives ah_nccl_collectives = {ah_nccl_check_all, graph_end_capture, graph_before_replay,
                                                        graph_after_replay};
