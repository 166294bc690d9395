/* The watch over collectives on devices: one thread of the process, while there are communicators.
 *
 * A hang of the device is visible nowhere else: every few milliseconds the thread checks, for the oldest call of each
 * communicator that the device has not completed, whether NCCL reports an error, whether a peer is lost, whether the
 * call has timed out. Then it records the error, notifies the peers, and aborts the communicator, which ends the hang;
 * the Lua thread raises the error when it next waits for the device or makes a call. If it does neither, stuck in the
 * driver, this thread ends the process in its place.
 *
 * An abort frees the communicator: while the Lua thread is in one of NCCL's functions it is left to that thread, for a
 * second.
 *
 * Locks: the list's, then a communicator's. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm/group/watch.h"
#include "comm/join/rank.h"
#include "cuda/nccl/nccl_group.h"

static const int64_t second_ns = 1000000000;
/* After a peer was seen to go, for its last work to complete; and for the control block to show which peer went when
 * NCCL only reports that one did. */
static const int64_t doubt_ns = 400 * 1000000;
static const int64_t last_resort_ns = 30 * second_ns;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watch_changed = PTHREAD_COND_INITIALIZER;
static struct ah_nccl_comm *watch_comms;
static bool watch_running;
/* A clock of the time in which this process ran: one that was stopped has not waited meanwhile. */
static _Atomic int64_t ran_ns;
static const int64_t longest_tick_ns = 200 * 1000000;

struct ah_nccl_comm *ah_nccl_watched(void)
{
    return watch_comms;
}

/* NCCL ends running calls at once, and then waits until no graph has its calls any more. */
static void *abort_beside(void *context)
{
    const struct ah_nccl *nccl;
    if (ah_nccl_open(&nccl) == 0)
        nccl->abort(context);
    return NULL;
}

static void abort_comm(struct ah_nccl_comm *comm)
{
    pthread_t thread;
    if (!comm->captured || ah_helper_start(&thread, abort_beside, comm->handle))
        comm->nccl->abort(comm->handle);
    else
        pthread_detach(thread);
    comm->handle = NULL;
}

static const int64_t leave_ns = 1 * second_ns;

static void nccl_watch_fail(struct ah_nccl_comm *comm, int status, const char *text)
{
    comm->failed = status;
    comm->failed_ns = ran_ns;
    snprintf(comm->text, sizeof comm->text, "%s", text);
    ah_watch_publish(comm->base.group, status, comm->text);
    if (!comm->entered)
        abort_comm(comm);
    comm->count = 0;
}

/* Check a call with NCCL, the peers and the clock. A doubt has to last to count, a timeout not. */
static void nccl_watch_examine(struct ah_nccl_comm *comm, const struct ah_nccl_record *record)
{
    int64_t now = ran_ns;
    char text[sizeof comm->text] = "";
    ncclResult_t code = ncclSuccess;
    if (comm->nccl->async_error(comm->handle, &code) != ncclSuccess)
        code = ncclInternalError;
    int64_t waited = now - record->begun_ns;
    int status = record->peer < 0
                     ? ah_watch_device(comm->base.group, record->sequence, record->call, waited, record->timeout_ns)
                     : ah_watch_message(comm->base.group, record->peer, record->call, waited, record->timeout_ns);
    if (status < 0) {
        snprintf(text, sizeof text, "%s", ah_error_text());
    } else if (code != ncclSuccess && code != ncclInProgress) {
        char what[AH_NCCL_CALL + 16];
        snprintf(what, sizeof what, "%s", record->call);
        status = ah_nccl_check(comm, code, what);
        snprintf(text, sizeof text, "%s", ah_error_text());
    } else {
        comm->doubted_ns = 0;
        return;
    }
    if (!comm->doubted_ns)
        comm->doubted_ns = now + 1;
    if (status == AH_ETIMEOUT || now - comm->doubted_ns >= doubt_ns)
        nccl_watch_fail(comm, status, text);
}

/* Remove the calls that the device has completed. */
static void nccl_watch_pass(struct ah_nccl_comm *comm)
{
    while (comm->count && ah_cuda.event_query(comm->record[comm->first].end) != CUDA_ERROR_NOT_READY) {
        comm->first = (comm->first + 1) % AH_NCCL_RECORDS;
        comm->count--;
        comm->doubted_ns = 0;
    }
}

static void nccl_watch_check(struct ah_nccl_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->handle && !comm->failed && ah_cuda_make_current(comm->cuda) == 0) {
        nccl_watch_pass(comm);
        if (comm->count || comm->entered)
            nccl_watch_examine(comm, comm->count ? &comm->record[comm->first] : &comm->entry);
    } else if (comm->handle && comm->failed && ran_ns - comm->failed_ns > leave_ns) {
        abort_comm(comm);
    }
    bool lost = comm->failed && !comm->known && ran_ns - comm->failed_ns > last_resort_ns;
    pthread_mutex_unlock(&comm->lock);
    if (lost) {
        if (!ah_rank_report_failure(comm->text, comm->failed == AH_EPEER))
            ah_notice("%s", comm->text);
        _exit(1);
    }
}

static void *nccl_watch_run(void *context)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* a capture of the Lua thread is none of this one's */
    bool relaxed = false;
    pthread_mutex_lock(&list_lock);
    for (int64_t before = ah_now_ns(), now;; before = now) {
        now = ah_now_ns();
        ran_ns += now - before < longest_tick_ns ? now - before : longest_tick_ns;
        while (!watch_comms)
            pthread_cond_wait(&watch_changed, &list_lock);
        for (struct ah_nccl_comm *comm = watch_comms; comm; comm = comm->next) {
            if (!relaxed && ah_cuda_make_current(comm->cuda) == 0)
                relaxed = ah_cuda.capture_mode(&mode) == CUDA_SUCCESS;
            nccl_watch_check(comm);
        }
        pthread_mutex_unlock(&list_lock);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        pthread_mutex_lock(&list_lock);
    }
    return context;
}

int ah_nccl_watch(struct ah_nccl_comm *comm)
{
    int status = 0;
    pthread_t thread;
    AH_LOCK_SCOPE(&list_lock);
    if (!watch_running && ah_helper_start(&thread, nccl_watch_run, NULL))
        status = ah_fail(AH_ENOMEM, "%s: no thread to watch over collectives", comm->cuda->device->name);
    if (status == 0) {
        if (!watch_running)
            pthread_detach(thread);
        watch_running = true;
        comm->next = watch_comms;
        watch_comms = comm;
        pthread_cond_signal(&watch_changed);
    }
    return status;
}

void ah_nccl_unwatch(struct ah_nccl_comm *comm)
{
    AH_LOCK_SCOPE(&list_lock);
    for (struct ah_nccl_comm **at = &watch_comms; *at; at = &(*at)->next) {
        if (*at != comm)
            continue;
        *at = comm->next;
        break;
    }
}

/* The next record, begun, with its text to be filled in. */
static int next_record(struct ah_nccl_comm *comm, struct ah_nccl_record **out)
{
    if (comm->count == AH_NCCL_RECORDS)
        nccl_watch_pass(comm);
    if (comm->count == AH_NCCL_RECORDS) /* so far ahead of the device: the watch sees the older ones */
        comm->count--;
    struct ah_nccl_record *record = &comm->record[(comm->first + comm->count) % AH_NCCL_RECORDS];
    if (!record->end)
        AH_TRY(ah_cuda_check(ah_cuda.event_create(&record->end, CU_EVENT_DISABLE_TIMING), "%s: an event",
                             comm->cuda->device->name));
    record->sequence = 0;
    record->peer = -1;
    record->begun_ns = ran_ns;
    record->timeout_ns = comm->base.group->timeout_ns;
    AH_TRY(ah_cuda_check(ah_cuda.event_record(record->end, comm->stream), "%s: an event", comm->cuda->device->name));
    comm->count++;
    *out = record;
    return 0;
}

static void nccl_watch_describe(struct ah_nccl_comm *comm, struct ah_nccl_record *record, uint32_t sequence)
{
    struct ah_group *group = comm->base.group;
    char title[100];
    record->sequence = sequence;
    record->peer = -1;
    snprintf(record->call, sizeof record->call, "%s at %s", ah_watch_title(group, sequence, title, sizeof title),
             ah_group_call_record(group, group->rank, sequence)->where);
}

int ah_nccl_note(struct ah_nccl_comm *comm, uint32_t sequence)
{
    struct ah_nccl_record *record;
    AH_TRY(next_record(comm, &record));
    nccl_watch_describe(comm, record, sequence);
    return 0;
}

bool ah_nccl_enter(struct ah_nccl_comm *comm, uint32_t sequence)
{
    struct ah_nccl_record *entry = &comm->entry;
    AH_LOCK_SCOPE(&comm->lock);
    comm->entered = comm->handle && !comm->failed;
    entry->begun_ns = ran_ns;
    entry->timeout_ns = comm->base.group->timeout_ns;
    nccl_watch_describe(comm, entry, sequence);
    return comm->entered;
}

int ah_nccl_leave(struct ah_nccl_comm *comm, int status, bool noted)
{
    AH_LOCK_SCOPE(&comm->lock);
    comm->entered = false;
    if (comm->failed && comm->handle)
        abort_comm(comm);
    else if (status == 0 && noted && comm->handle)
        status = ah_nccl_note(comm, comm->entry.sequence);
    status = comm->failed ? 0 : status;
    return status;
}

int ah_nccl_note_message(struct ah_nccl_comm *comm, const struct ah_message_request *transfer)
{
    struct ah_nccl_record *record;
    AH_TRY(next_record(comm, &record));
    record->peer = transfer->message.peer;
    ah_message_describe(transfer, record->call, sizeof record->call);
    return 0;
}
