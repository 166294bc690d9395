/* Messages by NCCL: a p2p channel is a communicator of its sender (rank 0) and its receiver, with its own stream, which
 * waits for the work on the compute stream at the time of the script's call. Steps are non-blocking as those of
 * message.h: a communicator that is opening, or a call that NCCL queues from its own thread, is polled again. */
#include <stdlib.h>

#include "cuda/driver/stream/capture.h"
#include "cuda/nccl/nccl_group.h"

struct mark {
    struct ah_cuda_device *cuda; /* outlives the channel */
    CUevent begin, end;          /* end NULL: not yet */
    bool given;                  /* to NCCL */
};

static int make_event(struct ah_cuda_device *cuda, CUevent *event, CUstream stream)
{
    AH_TRY(ah_cuda_check(ah_cuda.event_create(event, CU_EVENT_DISABLE_TIMING), "%s: an event", cuda->device->name));
    return ah_cuda_check(ah_cuda.event_record(*event, stream), "%s: an event", cuda->device->name);
}

int ah_nccl_mark(struct ah_message_request *transfer)
{
    struct ah_cuda_device *cuda = ah_cuda_state(transfer->message.device);
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_refuse(cuda, "a message", "send and receive outside of the step"));
    struct mark *mark = calloc(1, sizeof *mark);
    AH_TRY_MEMORY(mark, "out of memory");
    mark->cuda = cuda;
    transfer->mark = mark;
    return make_event(cuda, &mark->begin, cuda->compute);
}

void ah_nccl_unmark(struct ah_message_request *transfer)
{
    struct mark *mark = transfer->mark;
    if (mark->end && ah_cuda_make_current(mark->cuda) == 0)
        ah_cuda.stream_wait(mark->cuda->compute, mark->end, 0);
    if (mark->begin)
        ah_cuda.event_destroy(mark->begin);
    if (mark->end)
        ah_cuda.event_destroy(mark->end);
    free(mark);
}

/* Has NCCL completed its asynchronous call? */
static int is_free(struct ah_nccl_comm *comm, const char *what, bool *out)
{
    ncclResult_t code = ncclSuccess;
    AH_TRY(ah_nccl_check(comm, comm->nccl->async_error(comm->handle, &code), what));
    *out = code == ncclSuccess;
    return ah_nccl_check(comm, code, what);
}

static int wait_for_mark(struct ah_nccl_comm *comm, const struct mark *mark)
{
    return ah_cuda_check(ah_cuda.stream_wait(comm->stream, mark->begin, 0), "%s: waiting for an event",
                         comm->cuda->device->name);
}

/* A rank that sends to itself passes both halves to NCCL in one group: the send waits for its receive. */
static int give_looped(struct ah_nccl_comm *comm, struct ah_message_request *transfer)
{
    if (transfer->sends) {
        comm->looped = transfer;
        return 0;
    }
    if (!comm->looped)
        return 0;
    struct mark *sent = comm->looped->mark, *received = transfer->mark;
    AH_TRY(wait_for_mark(comm, sent));
    AH_TRY(wait_for_mark(comm, received));
    comm->nccl->group_start();
    int send = ah_nccl_give_message(comm, comm->looped), receive = ah_nccl_give_message(comm, transfer);
    int ended = ah_nccl_check(comm, comm->nccl->group_end(), "send and recv");
    sent->given = received->given = true;
    comm->looped = NULL;
    return send < 0 ? send : receive < 0 ? receive : ended;
}

static int give_one(struct ah_nccl_comm *comm, struct ah_message_request *transfer)
{
    struct mark *mark = transfer->mark;
    AH_TRY(wait_for_mark(comm, mark));
    AH_TRY(ah_nccl_give_message(comm, transfer));
    mark->given = true;
    return 0;
}

static int nccl_message_step(struct ah_nccl_comm *comm, struct ah_message_request *transfer, bool *done)
{
    struct mark *mark = transfer->mark;
    char call[AH_NCCL_CALL];
    bool idle;
    ah_message_describe(transfer, call, sizeof call);
    AH_TRY(is_free(comm, call, &idle));
    if (idle && !mark->given) {
        AH_TRY(comm->base.group->size == 1 ? give_looped(comm, transfer) : give_one(comm, transfer));
        if (!mark->given)
            return 0;
        AH_TRY(is_free(comm, call, &idle));
    }
    if (!idle)
        return 0;
    AH_TRY(ah_nccl_note_message(comm, transfer));
    AH_TRY(make_event(comm->cuda, &mark->end, comm->stream));
    *done = true;
    return 0;
}

int ah_nccl_move_message(struct ah_device_comm *p2p, struct ah_message_request *transfer, bool *done)
{
    struct ah_nccl_comm *comm = (struct ah_nccl_comm *)p2p;
    AH_TRY(ah_nccl_comm_type.check(p2p));
    AH_TRY(ah_cuda_enter(comm->cuda));
    pthread_mutex_lock(&comm->lock);
    int status = comm->handle ? nccl_message_step(comm, transfer, done) : 0;
    pthread_mutex_unlock(&comm->lock);
    return status;
}
