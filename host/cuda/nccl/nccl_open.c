/* Open and close communicators.
 *
 * A group's communicator is blocking, as PyTorch's are: a call returns when the stream has it. Its initialization and
 * its end wait for the peers: each runs on a separate thread, so that the Lua thread watches the peers meanwhile. A p2p
 * channel's communicator is non-blocking, since its first call waits for the peer's. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/trace/time.h"
#include "comm/group/watch.h"
#include "cuda/driver/stream/graph.h"
#include "cuda/nccl/nccl_group.h"

/* For the peers to end as well, when a communicator is closed. */
static const int64_t close_timeout_ns = 2000000000;

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

/* Identify a card as NCCL does, by host and bus: slices of one card (MIG) have different UUIDs, and are one card for
 * NCCL. */
int ah_nccl_card(struct ah_device *device, uint8_t card[AH_DEVICE_COMM_CARD])
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

int ah_nccl_invite(struct ah_device *device, uint8_t ticket[AH_DEVICE_COMM_TICKET])
{
    struct ah_nccl_comm comm = {.cuda = ah_cuda_state(device)};
    ncclUniqueId id;
    _Static_assert(sizeof id == AH_DEVICE_COMM_TICKET, "NCCL's id is the ticket");
    AH_TRY(ah_nccl_open(&comm.nccl));
    AH_TRY(ah_nccl_check(&comm, comm.nccl->unique_id(&id), "an id for a communicator"));
    memcpy(ticket, &id, sizeof id);
    return 0;
}

/* Threads. */

enum task_state { TASK_RUNS, TASK_ENDED, TASK_ABANDONED };

/* Opens a communicator, or ends `handle`. Freed by the caller, or once abandoned by its thread. */
struct task {
    const struct ah_nccl *nccl;
    CUcontext context;
    ncclComm_t handle;
    ncclUniqueId id;
    int ranks, rank;
    bool opens;
    ncclResult_t code;
    char text[400]; /* NCCL's last error */
    atomic_int state;
};

static ncclResult_t task_open(struct task *task)
{
    ncclConfig_t config = AH_NCCL_CONFIG;
    config.blocking = 1;
    ncclResult_t code = task->nccl->init(&task->handle, task->ranks, task->id, task->rank, &config);
    if (code == ncclSuccess)
        return code;
    snprintf(task->text, sizeof task->text, "%s", task->nccl->last_error(NULL));
    if (task->handle)
        task->nccl->abort(task->handle);
    task->handle = NULL;
    return code;
}

static ncclResult_t task_close(struct task *task)
{
    ncclResult_t code = task->nccl->finalize(task->handle);
    while (code == ncclInProgress) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        ncclResult_t asked = task->nccl->async_error(task->handle, &code);
        code = asked == ncclSuccess ? code : asked;
    }
    if (code == ncclSuccess)
        return task->nccl->destroy(task->handle);
    snprintf(task->text, sizeof task->text, "%s", task->nccl->last_error(NULL));
    task->nccl->abort(task->handle);
    return code;
}

static void *task_run(void *context)
{
    struct task *task = context;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* a capture of the Lua thread is none of this one's */
    ah_cuda.capture_mode(&mode);
    task->code = ah_cuda.context_set(task->context) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
    if (task->code == ncclSuccess)
        task->code = task->opens ? task_open(task) : task_close(task);
    int runs = TASK_RUNS;
    if (!atomic_compare_exchange_strong(&task->state, &runs, TASK_ENDED)) {
        if (task->opens && task->handle)
            task->nccl->abort(task->handle);
        free(task);
    }
    return NULL;
}

/* Run the task and wait for it while the peers are alive, at most `timeout_ns`; after an error its thread is left to
 * end by itself. */
static int task_await(struct ah_nccl_comm *comm, struct task *task, const char *call, int64_t timeout_ns)
{
    struct ah_group *group = comm->base.group;
    int64_t begin = ah_now_ns(), checked = begin;
    pthread_t thread;
    if (ah_helper_start(&thread, task_run, task)) {
        comm->handle = task->handle;
        free(task);
        return ah_fail(AH_ENOMEM, "%s: %s: no thread for it", comm->cuda->device->name, call);
    }
    pthread_detach(thread);
    for (unsigned turn = 0; atomic_load(&task->state) == TASK_RUNS; turn++) {
        int64_t now = ah_now_ns();
        int runs = TASK_RUNS, status = 0;
        if (now - checked > 50000000) {
            checked = now;
            status = ah_watch_device(group, group->issued, call, now - begin, timeout_ns);
        }
        if (status < 0 && atomic_compare_exchange_strong(&task->state, &runs, TASK_ABANDONED))
            return status;
        if (turn > 100)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        else
            sched_yield();
    }
    int status = ah_nccl_report(comm, task->code, call, task->text);
    if (status == 0 && task->opens)
        comm->handle = task->handle;
    free(task);
    return status;
}

static int task_new(struct ah_nccl_comm *comm, struct task **out)
{
    struct task *task = *out = calloc(1, sizeof *task);
    AH_TRY_MEMORY(task, "out of memory");
    task->nccl = comm->nccl;
    task->context = comm->cuda->context;
    return 0;
}

/* Communicators. */

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

static int comm_new(struct ah_nccl_comm **out, struct ah_group *group, struct ah_device *device)
{
    ah_nccl_register();
    struct ah_nccl_comm *comm = calloc(1, sizeof *comm);
    AH_TRY_MEMORY(comm, "out of memory");
    comm->base = (struct ah_device_comm){&ah_nccl_comm_type, group, device};
    comm->cuda = ah_cuda_state(device);
    pthread_mutex_init(&comm->lock, NULL);
    int status = ah_nccl_open(&comm->nccl);
    if (status == 0)
        status = ah_cuda_enter(comm->cuda);
    if (status == 0)
        status = ah_cuda_check(ah_cuda.stream_create(&comm->stream, CU_STREAM_NON_BLOCKING, -1), "%s: a stream",
                               device->name);
    if (status < 0)
        ah_nccl_free(comm);
    else
        *out = comm;
    return status;
}

static int open_blocking(struct ah_nccl_comm *comm, const uint8_t ticket[AH_DEVICE_COMM_TICKET])
{
    struct ah_group *group = comm->base.group;
    struct task *task;
    AH_TRY(task_new(comm, &task));
    memcpy(&task->id, ticket, sizeof task->id);
    task->ranks = group->size;
    task->rank = group->rank;
    task->opens = true;
    return task_await(comm, task, "setting up collectives", group->timeout_ns);
}

static int watch_or_free(struct ah_nccl_comm *comm, int status, struct ah_device_comm **out)
{
    if (status == 0)
        status = ah_nccl_watch(comm);
    if (status < 0)
        ah_nccl_free(comm);
    else
        *out = &comm->base;
    return status;
}

int ah_nccl_open_group(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                       struct ah_device_comm **out)
{
    struct ah_nccl_comm *comm;
    AH_TRY(comm_new(&comm, group, device));
    return watch_or_free(comm, open_blocking(comm, ticket), out);
}

int ah_nccl_open_p2p(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                     bool sends, struct ah_device_comm **out)
{
    struct ah_nccl_comm *comm;
    ncclConfig_t config = AH_NCCL_CONFIG;
    ncclComm_t handle = NULL;
    ncclUniqueId id;
    AH_TRY(comm_new(&comm, group, device));
    memcpy(&id, ticket, sizeof id);
    config.blocking = 0;
    int size = group->size > 1 ? 2 : 1, rank = sends || size == 1 ? 0 : 1;
    ncclResult_t code = comm->nccl->init(&handle, size, id, rank, &config);
    int status = ah_nccl_check(comm, code, "setting up a p2p channel");
    comm->handle = handle;
    return watch_or_free(comm, status, out);
}

static bool is_opening(const struct ah_nccl_comm *comm)
{
    ncclResult_t code = ncclSuccess;
    return comm->nccl->async_error(comm->handle, &code) != ncclSuccess || code == ncclInProgress;
}

/* Watched until the stream has completed all calls: a hang is ended by the watch. */
void ah_nccl_close(struct ah_device_comm *base)
{
    struct ah_nccl_comm *comm = (struct ah_nccl_comm *)base;
    struct task *task;
    ah_nccl_settle(base);
    if (comm->captured)
        ah_cuda_graphs_cut(comm->cuda, &comm->base);
    ah_nccl_unwatch(comm);
    if (comm->handle && !is_opening(comm) && task_new(comm, &task) == 0) {
        task->handle = comm->handle;
        comm->handle = NULL;
        task_await(comm, task, "ending collectives", close_timeout_ns);
    }
    ah_nccl_free(comm);
}
