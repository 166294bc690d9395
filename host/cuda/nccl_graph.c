/* On the device NCCL's works of one communicator have to come in one order on all ranks, whether a graph holds them or
 * not: what a lane's stream was given is done before a replay begins, and what it is given next waits for its end. */
#include "cuda/nccl_graph.h"

#include "cuda/nccl_group.h"

int ah_nccl_calls_add(struct ah_nccl_lane *lane)
{
    int count = 0;
    for (const struct ah_nccl_lane *other = ah_nccl_watched(); other; other = other->next)
        count += other->capturing;
    if (!lane->capturing && count == AH_NCCL_GRAPH_LANES)
        return ah_fail(AH_ESTATE, "a captured step has collectives of more than %d groups", AH_NCCL_GRAPH_LANES);
    lane->capturing = lane->captured = true;
    return 0;
}

bool ah_nccl_calls_have(const struct ah_nccl_calls *calls, const struct ah_nccl_lane *lane)
{
    for (int i = 0; i < calls->count; i++)
        if (calls->lane[i] == lane)
            return true;
    return false;
}

int ah_nccl_calls_end(struct ah_cuda_device *cuda, struct ah_nccl_calls *calls)
{
    int status = 0;
    calls->count = 0;
    for (struct ah_nccl_lane *lane = ah_nccl_watched(); lane; lane = lane->next) {
        if (lane->cuda != cuda || !lane->capturing)
            continue;
        lane->capturing = false;
        calls->lane[calls->count++] = lane;
        status = status < 0 ? status : ah_nccl_order(cuda, lane->stream, cuda->compute);
    }
    return status;
}

int ah_nccl_calls_meet(struct ah_cuda_device *cuda, const struct ah_nccl_calls *calls)
{
    for (int i = 0; i < calls->count; i++) {
        struct ah_collective meeting = ah_collective_barrier();
        meeting.where = "a captured step";
        AH_TRY(ah_group_run(calls->lane[i]->base.group, meeting));
        AH_TRY(ah_nccl_order(cuda, calls->lane[i]->stream, cuda->compute));
    }
    return 0;
}

int ah_nccl_calls_note(struct ah_cuda_device *cuda, const struct ah_nccl_calls *calls)
{
    for (int i = 0; i < calls->count; i++) {
        struct ah_nccl_lane *lane = calls->lane[i];
        AH_TRY(ah_nccl_order(cuda, cuda->compute, lane->stream));
        pthread_mutex_lock(&lane->lock);
        int status = lane->comm ? ah_nccl_note(lane, lane->base.group->posted) : 0;
        pthread_mutex_unlock(&lane->lock);
        AH_TRY(status);
    }
    return 0;
}
