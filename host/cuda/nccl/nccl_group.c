/* Calls of a device communicator. The end of earlier work is recorded on the compute stream when a work begins; it is
 * passed to NCCL when all ranks have begun it, after those before it, and its end is waited for by the compute stream
 * when the host waits for the work. A blocking call is the same at once. */
#include "cuda/nccl/nccl_group.h"

#include "comm/group/watch.h"
#include "cuda/driver/api/collectives.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/graph.h"
#include "optim/kernels.h"

struct nccl_work {
    struct ah_work base;
    struct ah_cuda_device *cuda; /* outlives the communicator */
    CUevent begin, end;          /* NULL: not yet */
    double divisor;
    bool captured; /* begun within a captured step, which alone has these events */
};

static struct ah_nccl_comm *comm_of(const struct ah_group *group)
{
    return (struct ah_nccl_comm *)group->device_comm;
}

static int new_event(struct ah_cuda_device *cuda, CUevent *out)
{
    return ah_cuda_check(ah_cuda.event_create(out, CU_EVENT_DISABLE_TIMING), "%s: an event", cuda->device->name);
}

/* Make `after` wait for the work queued on `stream`. */
static int nccl_order(struct ah_cuda_device *cuda, CUstream stream, CUstream after, CUevent event)
{
    AH_TRY(ah_cuda_check(ah_cuda.event_record(event, stream), "%s: an event", cuda->device->name));
    if (!after)
        return 0;
    return ah_cuda_check(ah_cuda.stream_wait(after, event, 0), "%s: waiting for an event", cuda->device->name);
}

int ah_nccl_order(struct ah_cuda_device *cuda, CUstream stream, CUstream after)
{
    CUevent event;
    AH_TRY(new_event(cuda, &event));
    int status = nccl_order(cuda, stream, after, event);
    ah_cuda.event_destroy(event);
    return status;
}

/* Failures. */

static int comm_check(struct ah_device_comm *base)
{
    struct ah_nccl_comm *comm = (struct ah_nccl_comm *)base;
    pthread_mutex_lock(&comm->lock);
    int status = comm->failed;
    comm->known = comm->known || status < 0;
    pthread_mutex_unlock(&comm->lock);
    return status < 0 ? ah_fail(status, "%s", comm->text) : 0;
}

int ah_nccl_check_all(struct ah_cuda_device *cuda)
{
    for (struct ah_nccl_comm *comm = ah_nccl_watched(); comm; comm = comm->next) {
        if (comm->cuda != cuda)
            continue;
        AH_TRY(ah_device_comm_check(comm->base.group));
        AH_TRY(ah_group_check_health(comm->base.group, cuda->device->name));
    }
    return 0;
}

/* Captured steps. A communicator's stream joins the capture through the events of its calls, so NCCL's kernels become
 * nodes of the graph; a replay is one call of each group, which its ranks make together. The device must run the calls
 * of one NCCL communicator in the same order on all ranks, inside a graph or not: calls queued before a replay complete
 * before it begins, and calls queued after it wait for its end. Lua thread only. */

/* Register a call of the communicator with the step being captured. AH_ESTATE beyond AH_CUDA_GRAPH_COMMS groups. */
static int graph_add(struct ah_nccl_comm *comm)
{
    int count = 0;
    for (const struct ah_nccl_comm *other = ah_nccl_watched(); other; other = other->next)
        count += other->capturing;
    if (!comm->capturing && count == AH_CUDA_GRAPH_COMMS)
        return ah_fail(AH_ESTATE, "a captured step has collectives of more than %d groups", AH_CUDA_GRAPH_COMMS);
    comm->capturing = true;
    AH_LOCK_SCOPE(&comm->lock);
    comm->captured = true;
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
        int status = comm->handle ? ah_nccl_note(comm, comm->base.group->issued) : 0;
        pthread_mutex_unlock(&comm->lock);
        AH_TRY(status);
    }
    return 0;
}

/* The hooks for graphs and waits (driver/api/collectives.h). */
static const struct ah_cuda_collectives nccl_collectives = {ah_nccl_check_all, graph_end_capture, graph_before_replay,
                                                            graph_after_replay};

void ah_nccl_register(void)
{
    ah_cuda_collectives = &nccl_collectives;
}

static int comm_available(void)
{
    const struct ah_nccl *nccl;
    return ah_nccl_open(&nccl);
}

int ah_nccl_settle(struct ah_device_comm *base)
{
    struct ah_nccl_comm *comm = (struct ah_nccl_comm *)base;
    AH_TRY(ah_cuda_enter(comm->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(comm->stream), "%s: waiting for collectives",
                         comm->cuda->device->name));
    return comm_check(base);
}

void ah_nccl_close_all(struct ah_cuda_device *cuda)
{
    struct ah_nccl_comm *comm = ah_nccl_watched();
    while (comm) {
        bool its = comm->cuda == cuda;
        if (its)
            ah_device_comm_forget(comm->base.group); /* and others with it */
        comm = its ? ah_nccl_watched() : comm->next;
    }
}

/* Calls. */

static bool comm_takes(const struct ah_collective *call)
{
    if (ah_collective_is_barrier(call->kind))
        return false;
    bool bits = ah_collective_reduces(call) && call->reduce >= AH_REDUCE_AND;
    return !bits || (call->dtype == AH_BOOL && call->reduce != AH_REDUCE_XOR);
}

static double weights_of(const struct ah_group *group, uint32_t sequence)
{
    double sum = 0;
    for (int r = 0; r < group->size; r++)
        sum += ah_group_call_record(group, r, sequence)->weight;
    return sum;
}

/* Queue a call on the stream, and show it to the watch. The lock is not held meanwhile: the first call between two
 * cards waits for the peer's, and the watch ends that wait by an abort. */
static int nccl_give(struct ah_nccl_comm *comm, const struct ah_collective *call, uint32_t sequence, double weights,
                     double *divisor)
{
    bool capturing = comm->cuda->capturing != NULL;
    if (capturing) {
        const void *words[] = {call->in, call->out};
        AH_TRY(comm_check(&comm->base));
        AH_TRY(ah_cuda_capture_see(comm->cuda, words, sizeof words));
        AH_TRY(graph_add(comm));
    }
    if (ah_nccl_enter(comm, sequence)) {
        int status = ah_nccl_move(comm, call, weights, divisor);
        AH_TRY(ah_nccl_leave(comm, status, !capturing));
    }
    return comm_check(&comm->base);
}

/* If weights differ the sum is divided after it. */
static int nccl_divide(struct ah_cuda_device *cuda, const struct ah_collective *call, int rank, double divisor)
{
    struct ah_optim_run all = {call->out, call->count};
    if (divisor == 1 || (call->kind == AH_REDUCE && rank != call->root))
        return 0;
    return cuda->device->optim->scale(cuda->device, &all, 1, 1 / divisor, call->dtype, NULL);
}

static int comm_run(struct ah_group *group, const struct ah_collective *call)
{
    struct ah_nccl_comm *comm = comm_of(group);
    struct ah_cuda_device *cuda = comm->cuda;
    double divisor = 1;
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_nccl_order(cuda, cuda->compute, comm->stream));
    AH_TRY(nccl_give(comm, call, group->issued, weights_of(group, group->issued), &divisor));
    AH_TRY(ah_nccl_order(cuda, comm->stream, cuda->compute));
    return nccl_divide(cuda, call, group->rank, divisor);
}

/* Works. */

static int comm_start(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    own->cuda = comm_of(work->group)->cuda;
    own->divisor = 1;
    own->captured = own->cuda->capturing != NULL;
    AH_TRY(ah_cuda_enter(own->cuda));
    AH_TRY(new_event(own->cuda, &own->begin));
    return nccl_order(own->cuda, own->cuda->compute, NULL, own->begin);
}

static int comm_carry(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    struct ah_nccl_comm *comm = comm_of(work->group);
    AH_TRY(ah_cuda_enter(own->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_wait(comm->stream, own->begin, 0), "%s: waiting for an event",
                         own->cuda->device->name));
    AH_TRY(nccl_give(comm, &work->call, work->sequence, work->weight, &own->divisor));
    AH_TRY(new_event(own->cuda, &own->end));
    return nccl_order(own->cuda, comm->stream, NULL, own->end);
}

static bool comm_ready(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    if (own->captured)
        return !own->cuda->capturing; /* a work that has not begun cannot be queried */
    return own->end && ah_cuda_make_current(own->cuda) == 0 && ah_cuda.event_query(own->end) == CUDA_SUCCESS;
}

/* A captured step has its own order; the host waits for works that were begun before it and have not completed. */
static int wait_for_end(struct nccl_work *own)
{
    bool capturing = own->cuda->capturing != NULL;
    if (!own->end || (own->captured && !capturing) || ah_cuda_make_current(own->cuda) < 0)
        return 0;
    if (capturing && !own->captured) {
        CUstreamCaptureMode before = ah_cuda_relax();
        CUresult code = ah_cuda.event_synchronise(own->end);
        ah_cuda_tighten(before);
        return ah_cuda_check(code, "%s: waiting for a collective", own->cuda->device->name);
    }
    return ah_cuda_check(ah_cuda.stream_wait(own->cuda->compute, own->end, 0), "%s: waiting for an event",
                         own->cuda->device->name);
}

static int comm_order(struct ah_work *work)
{
    return wait_for_end((struct nccl_work *)work);
}

static int comm_finish(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    bool mean = ah_collective_reduces(&work->call) && work->call.reduce == AH_REDUCE_MEAN;
    if (work->ahead && mean && work->weight != 0) /* NCCL divided by the number of ranks */
        own->divisor = work->weight / work->group->size;
    AH_TRY(wait_for_end(own));
    return nccl_divide(own->cuda, &work->call, work->group->rank, own->divisor);
}

/* The next user of a dropped work's memory uses it on the compute stream. */
static void comm_drop(struct ah_work *work, bool complete)
{
    struct nccl_work *own = (struct nccl_work *)work;
    wait_for_end(own);
    if (own->begin)
        ah_cuda.event_destroy(own->begin);
    if (own->end)
        ah_cuda.event_destroy(own->end);
    own->begin = own->end = NULL;
}

const struct ah_device_comm_type ah_nccl_comm_type = {
    .moves = {.name = "nccl",
              .work_bytes = sizeof(struct nccl_work),
              .run = comm_run,
              .start = comm_start,
              .carry = comm_carry,
              .carries_ahead = true,
              .finish = comm_finish,
              .order = comm_order,
              .drop = comm_drop},
    .takes = comm_takes,
    .available = comm_available,
    .card = ah_nccl_card,
    .invite = ah_nccl_invite,
    .open = ah_nccl_open_group,
    .close = ah_nccl_close,
    .ready = comm_ready,
    .check = comm_check,
    .settle = ah_nccl_settle,
    .mark = ah_nccl_mark,
    .open_p2p = ah_nccl_open_p2p,
    .move = ah_nccl_move_message,
    .unmark = ah_nccl_unmark,
};
