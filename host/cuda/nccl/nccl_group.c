/* Calls of a device communicator. What a work is to wait for is noted on the compute stream when it begins; it is given
 * to NCCL when all ranks have begun it, behind those before it, and its end is waited for by the compute stream when
 * the host waits for the work. A blocking call is the same at once. */
#include "cuda/nccl/nccl_group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "comm/group/watch.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/graph.h"
#include "cuda/nccl/nccl_graph.h"
#include "optim/kernels.h"

struct nccl_work {
    struct ah_work base;
    struct ah_cuda_device *cuda; /* outlives the communicator */
    CUevent begin, end;          /* NULL: not yet */
    double divisor;
    bool captured; /* begun within a captured step, which alone has these events */
};

/* For the peers to end as well, when a communicator is closed. */
static const int64_t patience_ns = 2000000000;

static struct ah_nccl_comm *comm_of(const struct ah_group *group)
{
    return (struct ah_nccl_comm *)group->device_comm;
}

static int new_event(struct ah_cuda_device *cuda, CUevent *out)
{
    return ah_cuda_check(ah_cuda.event_create(out, CU_EVENT_DISABLE_TIMING), "%s: an event", cuda->device->name);
}

/* Make `after` wait for the work queued on `stream`. */
static int order(struct ah_cuda_device *cuda, CUstream stream, CUstream after, CUevent event)
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
    int status = order(cuda, stream, after, event);
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

/* Opening. */

static int comm_available(void)
{
    const struct ah_nccl *nccl;
    return ah_nccl_open(&nccl);
}

/* A number of this host: of its kernel's start, which containers share. */
static uint64_t host_number(void)
{
    char text[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(text, sizeof text, file))
        gethostname(text, sizeof text - 1);
    if (file)
        fclose(file);
    uint64_t number = 0xcbf29ce484222325u;
    for (const char *at = text; *at; at++)
        number = (number ^ (uint8_t)*at) * 0x100000001b3u;
    return number;
}

/* Identify a card as NCCL does, by host and bus: slices of one card (MIG) have UUIDs of their own, and are one to
 * it. */
static int comm_card(struct ah_device *device, uint8_t card[AH_DEVICE_COMM_CARD])
{
    static const CUdevice_attribute where[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                               CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    const struct ah_nccl *nccl;
    uint64_t words[2] = {host_number(), 0};
    _Static_assert(sizeof words == AH_DEVICE_COMM_CARD, "a card is two words");
    AH_TRY(ah_nccl_open(&nccl));
    for (int i = 0; i < 3; i++) {
        int value;
        AH_TRY(ah_cuda_check(ah_cuda.device_attribute(&value, where[i], ah_cuda_state(device)->handle),
                             "%s: its place on the bus", device->name));
        words[1] = words[1] << 20 | (uint64_t)value;
    }
    memcpy(card, words, AH_DEVICE_COMM_CARD);
    return 0;
}

static int comm_invite(struct ah_device *device, uint8_t ticket[AH_DEVICE_COMM_TICKET])
{
    struct ah_nccl_comm comm = {.cuda = ah_cuda_state(device)};
    ncclUniqueId id;
    _Static_assert(sizeof id == AH_DEVICE_COMM_TICKET, "NCCL's id is the ticket");
    AH_TRY(ah_nccl_open(&comm.nccl));
    AH_TRY(ah_nccl_check(&comm, comm.nccl->unique_id(&id), "an id for a communicator"));
    memcpy(ticket, &id, sizeof id);
    return 0;
}

/* NCCL works asynchronously to this thread: wait for its call, as long as the peers are alive. */
static int await(struct ah_nccl_comm *comm, struct ah_group *group, const char *what, int64_t timeout_ns)
{
    int64_t start = ah_now_ns(), looked = start;
    for (unsigned turn = 0;; turn++) {
        ncclResult_t code = ncclSuccess;
        pthread_mutex_lock(&comm->lock);
        int failed = comm->failed;
        int status =
            failed || !comm->handle ? 0 : ah_nccl_check(comm, comm->nccl->async_error(comm->handle, &code), what);
        pthread_mutex_unlock(&comm->lock);
        if (failed)
            return comm_check(&comm->base);
        AH_TRY(status);
        AH_TRY(ah_nccl_check(comm, code, what));
        if (code == ncclSuccess)
            return 0;
        int64_t now = ah_now_ns();
        if (now - looked > 50000000) {
            looked = now;
            AH_TRY(ah_watch_device(group, group->posted, what, now - start, timeout_ns));
        }
        if (turn > 100)
            sched_yield();
    }
}

void ah_nccl_free(struct ah_nccl_comm *comm)
{
    if (comm->handle)
        comm->nccl->abort(comm->handle);
    for (int i = 0; i < AH_NCCL_RECORDS; i++)
        if (comm->record[i].end)
            ah_cuda.event_destroy(comm->record[i].end);
    if (comm->stream)
        ah_cuda.stream_destroy(comm->stream);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static int set_up(struct ah_nccl_comm *comm, const uint8_t ticket[AH_DEVICE_COMM_TICKET], int ranks, int rank)
{
    ncclUniqueId id;
    ncclConfig_t config = AH_NCCL_CONFIG;
    const char *name = comm->cuda->device->name;
    memcpy(&id, ticket, sizeof id);
    config.blocking = 0;
    AH_TRY(ah_nccl_open(&comm->nccl));
    AH_TRY(ah_cuda_enter(comm->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_create(&comm->stream, CU_STREAM_NON_BLOCKING, -1), "%s: a stream", name));
    return ah_nccl_check(comm, comm->nccl->init(&comm->handle, ranks, id, rank, &config), "setting up collectives");
}

int ah_nccl_new(struct ah_nccl_comm **out, struct ah_group *group, struct ah_device *device,
                const uint8_t ticket[AH_DEVICE_COMM_TICKET], int ranks, int rank)
{
    ah_cuda_collectives = &ah_nccl_collectives;
    struct ah_nccl_comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return ah_fail(AH_ENOMEM, "out of memory");
    comm->base = (struct ah_device_comm){&ah_nccl_comm_type, group, device};
    comm->cuda = ah_cuda_state(device);
    pthread_mutex_init(&comm->lock, NULL);
    int status = set_up(comm, ticket, ranks, rank);
    if (status < 0)
        ah_nccl_free(comm);
    else
        *out = comm;
    return status;
}

static int comm_open(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                     struct ah_device_comm **out)
{
    struct ah_nccl_comm *comm;
    AH_TRY(ah_nccl_new(&comm, group, device, ticket, group->size, group->rank));
    int status = await(comm, group, "setting up collectives", group->timeout_ns);
    if (status == 0)
        status = ah_nccl_watch(comm);
    if (status < 0)
        ah_nccl_free(comm);
    else
        *out = &comm->base;
    return status;
}

static int comm_settle(struct ah_device_comm *base)
{
    struct ah_nccl_comm *comm = (struct ah_nccl_comm *)base;
    AH_TRY(ah_cuda_enter(comm->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(comm->stream), "%s: waiting for collectives",
                         comm->cuda->device->name));
    return comm_check(base);
}

/* Under the watch until nothing is under way: what hangs is ended by it. */
static void comm_close(struct ah_device_comm *base)
{
    struct ah_nccl_comm *comm = (struct ah_nccl_comm *)base;
    comm_settle(base);
    if (comm->captured)
        ah_cuda_graphs_cut(comm->cuda, &comm->base);
    ah_nccl_unwatch(comm);
    if (comm->handle && ah_nccl_check(comm, comm->nccl->finalize(comm->handle), "ending collectives") == 0 &&
        await(comm, base->group, "ending collectives", patience_ns) == 0) {
        comm->nccl->destroy(comm->handle);
        comm->handle = NULL;
    }
    ah_nccl_free(comm);
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
        sum += ah_group_post(group, r, sequence)->weight;
    return sum;
}

/* Give a call to the stream, and to the watch. */
static int give(struct ah_nccl_comm *comm, const struct ah_collective *call, uint32_t sequence, double *divisor)
{
    struct ah_group *group = comm->base.group;
    AH_TRY(comm_check(&comm->base));
    if (comm->cuda->capturing) {
        const void *words[] = {call->in, call->out};
        AH_TRY(ah_cuda_capture_see(comm->cuda, words, sizeof words));
        AH_TRY(ah_nccl_graph_add(comm));
    }
    pthread_mutex_lock(&comm->lock);
    int status = comm->handle ? ah_nccl_move(comm, call, weights_of(group, sequence), divisor) : 0;
    pthread_mutex_unlock(&comm->lock);
    AH_TRY(status);
    /* A thread of NCCL may give it to the stream: its end is noted behind that. */
    AH_TRY(await(comm, group, ah_collective_name(call->kind, call->async), group->timeout_ns));
    if (comm->cuda->capturing)
        return 0;
    pthread_mutex_lock(&comm->lock);
    status = ah_nccl_note(comm, sequence);
    pthread_mutex_unlock(&comm->lock);
    return status;
}

/* Where weights differ the sum is divided behind it. */
static int divide(struct ah_cuda_device *cuda, const struct ah_collective *call, int rank, double divisor)
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
    AH_TRY(give(comm, call, group->posted, &divisor));
    AH_TRY(ah_nccl_order(cuda, comm->stream, cuda->compute));
    return divide(cuda, call, group->rank, divisor);
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
    return order(own->cuda, own->cuda->compute, NULL, own->begin);
}

static int comm_carry(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    struct ah_nccl_comm *comm = comm_of(work->group);
    AH_TRY(ah_cuda_enter(own->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_wait(comm->stream, own->begin, 0), "%s: waiting for an event",
                         own->cuda->device->name));
    AH_TRY(give(comm, &work->call, work->sequence, &own->divisor));
    AH_TRY(new_event(own->cuda, &own->end));
    return order(own->cuda, comm->stream, NULL, own->end);
}

static bool comm_ready(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    if (own->captured)
        return !own->cuda->capturing; /* a work that has not begun cannot be queried */
    return own->end && ah_cuda_make_current(own->cuda) == 0 && ah_cuda.event_query(own->end) == CUDA_SUCCESS;
}

/* A captured step has its own order; what was begun before it and is not through, the host waits for. */
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

static int comm_finish(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    AH_TRY(wait_for_end(own));
    return divide(own->cuda, &work->call, work->group->rank, own->divisor);
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
              .finish = comm_finish,
              .drop = comm_drop},
    .takes = comm_takes,
    .available = comm_available,
    .card = comm_card,
    .invite = comm_invite,
    .open = comm_open,
    .close = comm_close,
    .ready = comm_ready,
    .check = comm_check,
    .settle = comm_settle,
    .mark = ah_nccl_mark,
    .open_p2p = ah_nccl_open_p2p,
    .move = ah_nccl_move_message,
    .unmark = ah_nccl_unmark,
};
