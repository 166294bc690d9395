/* A lane's calls. What a work is to wait for is noted on the compute stream when it begins; it is given to NCCL when
 * all ranks have begun it, behind those before it, and its end is waited for by the compute stream when the host waits
 * for the work. A blocking call is the same at once. */
#include "cuda/nccl_group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"
#include "comm/group/watch.h"
#include "cuda/capture.h"
#include "cuda/graph.h"
#include "cuda/nccl_graph.h"
#include "optim/kernels.h"

struct nccl_work {
    struct ah_work base;
    struct ah_cuda_device *cuda; /* outlives the lane */
    CUevent begin, end;          /* NULL: not yet */
    double divisor;
    bool captured; /* begun within a captured step, which alone has these events */
};

/* For the peers to end as well, when a lane is closed. */
static const int64_t patience_ns = 2000000000;

static struct ah_nccl_lane *lane_of(const struct ah_group *group)
{
    return (struct ah_nccl_lane *)group->lane;
}

static int new_event(struct ah_cuda_device *cuda, CUevent *out)
{
    return ah_cuda_check(ah_cuda.event_create(out, CU_EVENT_DISABLE_TIMING), "%s: an event", cuda->device->name);
}

/* What lies in `stream` is done before `after` goes on. */
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

static int lane_check(struct ah_device_comm *base)
{
    struct ah_nccl_lane *lane = (struct ah_nccl_lane *)base;
    pthread_mutex_lock(&lane->lock);
    int status = lane->failed;
    lane->known = lane->known || status < 0;
    pthread_mutex_unlock(&lane->lock);
    return status < 0 ? ah_fail(status, "%s", lane->text) : 0;
}

int ah_cuda_check_lanes(struct ah_cuda_device *cuda)
{
    for (struct ah_nccl_lane *lane = ah_nccl_watched(); lane; lane = lane->next) {
        if (lane->cuda != cuda)
            continue;
        AH_TRY(ah_device_comm_check(lane->base.group));
        AH_TRY(ah_group_check_health(lane->base.group, cuda->device->name));
    }
    return 0;
}

/* Opening. */

static int lane_available(void)
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

/* As NCCL tells cards apart, by host and bus: slices of one card (MIG) have UUIDs of their own, and are one to it. */
static int lane_card(struct ah_device *device, uint8_t card[AH_DEVICE_COMM_CARD])
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

static int lane_invite(struct ah_device *device, uint8_t ticket[AH_DEVICE_COMM_TICKET])
{
    struct ah_nccl_lane lane = {.cuda = ah_cuda_state(device)};
    ncclUniqueId id;
    _Static_assert(sizeof id == AH_DEVICE_COMM_TICKET, "NCCL's id is the ticket");
    AH_TRY(ah_nccl_open(&lane.nccl));
    AH_TRY(ah_nccl_check(&lane, lane.nccl->unique_id(&id), "an id for a communicator"));
    memcpy(ticket, &id, sizeof id);
    return 0;
}

/* NCCL works on, beside this thread, on what it was told: wait for it, as long as the peers are there. */
static int await(struct ah_nccl_lane *lane, struct ah_group *group, const char *what, int64_t timeout_ns)
{
    int64_t start = ah_now_ns(), looked = start;
    for (unsigned turn = 0;; turn++) {
        ncclResult_t code = ncclSuccess;
        pthread_mutex_lock(&lane->lock);
        int failed = lane->failed;
        int status = failed || !lane->comm ? 0 : ah_nccl_check(lane, lane->nccl->async_error(lane->comm, &code), what);
        pthread_mutex_unlock(&lane->lock);
        if (failed)
            return lane_check(&lane->base);
        AH_TRY(status);
        AH_TRY(ah_nccl_check(lane, code, what));
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

void ah_nccl_free(struct ah_nccl_lane *lane)
{
    if (lane->comm)
        lane->nccl->abort(lane->comm);
    for (int i = 0; i < AH_NCCL_RECORDS; i++)
        if (lane->record[i].end)
            ah_cuda.event_destroy(lane->record[i].end);
    if (lane->stream)
        ah_cuda.stream_destroy(lane->stream);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

static int set_up(struct ah_nccl_lane *lane, const uint8_t ticket[AH_DEVICE_COMM_TICKET], int ranks, int rank)
{
    ncclUniqueId id;
    ncclConfig_t config = AH_NCCL_CONFIG;
    const char *name = lane->cuda->device->name;
    memcpy(&id, ticket, sizeof id);
    config.blocking = 0;
    AH_TRY(ah_nccl_open(&lane->nccl));
    AH_TRY(ah_cuda_enter(lane->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_create(&lane->stream, CU_STREAM_NON_BLOCKING, -1), "%s: a stream", name));
    return ah_nccl_check(lane, lane->nccl->init(&lane->comm, ranks, id, rank, &config), "setting up collectives");
}

int ah_nccl_new(struct ah_nccl_lane **out, struct ah_group *group, struct ah_device *device,
                const uint8_t ticket[AH_DEVICE_COMM_TICKET], int ranks, int rank)
{
    struct ah_nccl_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return ah_fail(AH_ENOMEM, "out of memory");
    lane->base = (struct ah_device_comm){&ah_nccl_lane_type, group, device};
    lane->cuda = ah_cuda_state(device);
    pthread_mutex_init(&lane->lock, NULL);
    int status = set_up(lane, ticket, ranks, rank);
    if (status < 0)
        ah_nccl_free(lane);
    else
        *out = lane;
    return status;
}

static int lane_open(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                     struct ah_device_comm **out)
{
    struct ah_nccl_lane *lane;
    AH_TRY(ah_nccl_new(&lane, group, device, ticket, group->size, group->rank));
    int status = await(lane, group, "setting up collectives", group->timeout_ns);
    if (status == 0)
        status = ah_nccl_watch(lane);
    if (status < 0)
        ah_nccl_free(lane);
    else
        *out = &lane->base;
    return status;
}

static int lane_settle(struct ah_device_comm *base)
{
    struct ah_nccl_lane *lane = (struct ah_nccl_lane *)base;
    AH_TRY(ah_cuda_enter(lane->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(lane->stream), "%s: waiting for collectives",
                         lane->cuda->device->name));
    return lane_check(base);
}

/* Under the watch until nothing is under way: what hangs is ended by it. */
static void lane_close(struct ah_device_comm *base)
{
    struct ah_nccl_lane *lane = (struct ah_nccl_lane *)base;
    lane_settle(base);
    if (lane->captured)
        ah_cuda_graphs_cut(lane->cuda, lane);
    ah_nccl_unwatch(lane);
    if (lane->comm && ah_nccl_check(lane, lane->nccl->finalize(lane->comm), "ending collectives") == 0 &&
        await(lane, base->group, "ending collectives", patience_ns) == 0) {
        lane->nccl->destroy(lane->comm);
        lane->comm = NULL;
    }
    ah_nccl_free(lane);
}

void ah_cuda_close_lanes(struct ah_cuda_device *cuda)
{
    struct ah_nccl_lane *lane = ah_nccl_watched();
    while (lane) {
        bool its = lane->cuda == cuda;
        if (its)
            ah_device_comm_forget(lane->base.group); /* and others with it */
        lane = its ? ah_nccl_watched() : lane->next;
    }
}

/* Calls. */

static bool lane_takes(const struct ah_collective *call)
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
static int give(struct ah_nccl_lane *lane, const struct ah_collective *call, uint32_t sequence, double *divisor)
{
    struct ah_group *group = lane->base.group;
    AH_TRY(lane_check(&lane->base));
    if (lane->cuda->capturing) {
        const void *words[] = {call->in, call->out};
        AH_TRY(ah_cuda_capture_see(lane->cuda, words, sizeof words));
        AH_TRY(ah_nccl_calls_add(lane));
    }
    pthread_mutex_lock(&lane->lock);
    int status = lane->comm ? ah_nccl_move(lane, call, weights_of(group, sequence), divisor) : 0;
    pthread_mutex_unlock(&lane->lock);
    AH_TRY(status);
    /* A thread of NCCL may give it to the stream: its end is noted behind that. */
    AH_TRY(await(lane, group, ah_collective_name(call->kind, call->async), group->timeout_ns));
    if (lane->cuda->capturing)
        return 0;
    pthread_mutex_lock(&lane->lock);
    status = ah_nccl_note(lane, sequence);
    pthread_mutex_unlock(&lane->lock);
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

static int lane_run(struct ah_group *group, const struct ah_collective *call)
{
    struct ah_nccl_lane *lane = lane_of(group);
    struct ah_cuda_device *cuda = lane->cuda;
    double divisor = 1;
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_nccl_order(cuda, cuda->compute, lane->stream));
    AH_TRY(give(lane, call, group->posted, &divisor));
    AH_TRY(ah_nccl_order(cuda, lane->stream, cuda->compute));
    return divide(cuda, call, group->rank, divisor);
}

/* Works. */

static int lane_start(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    own->cuda = lane_of(work->group)->cuda;
    own->divisor = 1;
    own->captured = own->cuda->capturing != NULL;
    AH_TRY(ah_cuda_enter(own->cuda));
    AH_TRY(new_event(own->cuda, &own->begin));
    return order(own->cuda, own->cuda->compute, NULL, own->begin);
}

static int lane_carry(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    struct ah_nccl_lane *lane = lane_of(work->group);
    AH_TRY(ah_cuda_enter(own->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_wait(lane->stream, own->begin, 0), "%s: waiting for an event",
                         own->cuda->device->name));
    AH_TRY(give(lane, &work->call, work->sequence, &own->divisor));
    AH_TRY(new_event(own->cuda, &own->end));
    return order(own->cuda, lane->stream, NULL, own->end);
}

static bool lane_ready(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    if (own->captured)
        return !own->cuda->capturing; /* none can look at what does not run yet */
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

static int lane_finish(struct ah_work *work)
{
    struct nccl_work *own = (struct nccl_work *)work;
    AH_TRY(wait_for_end(own));
    return divide(own->cuda, &work->call, work->group->rank, own->divisor);
}

/* Whoever takes the memory of a dropped work uses it on the compute stream. */
static void lane_drop(struct ah_work *work, bool complete)
{
    struct nccl_work *own = (struct nccl_work *)work;
    wait_for_end(own);
    if (own->begin)
        ah_cuda.event_destroy(own->begin);
    if (own->end)
        ah_cuda.event_destroy(own->end);
    own->begin = own->end = NULL;
}

const struct ah_device_comm_type ah_nccl_lane_type = {
    .moves = {.name = "nccl",
              .work_bytes = sizeof(struct nccl_work),
              .run = lane_run,
              .start = lane_start,
              .carry = lane_carry,
              .finish = lane_finish,
              .drop = lane_drop},
    .takes = lane_takes,
    .available = lane_available,
    .card = lane_card,
    .invite = lane_invite,
    .open = lane_open,
    .close = lane_close,
    .ready = lane_ready,
    .check = lane_check,
    .settle = lane_settle,
    .mark = ah_nccl_mark,
    .open_line = ah_nccl_open_line,
    .move = ah_nccl_move_message,
    .unmark = ah_nccl_unmark,
};
