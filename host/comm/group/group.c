/* The dispatcher of collectives: the part that is common to every backend's calls.
 *
 * A call is issued (numbered, its fingerprint written to the own group block, ISSUED advanced); when every rank has
 * issued it and all fingerprints agree the backend moves the data, and DONE reports that this rank has done its part
 * for its peers. ISSUED and DONE move through the same sequence of calls on every rank. A ring entry is overwritten
 * only when all ranks have done the call it describes, this one included: a rank that is ahead first does its own part
 * of old works.
 *
 * Works are carried out strictly in order, by any later call: a rank that waits for one has done its part of all
 * earlier ones, so no two ranks wait for each other. */
#include "comm/group/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/notice.h"
#include "base/trace/time.h"
#include "base/trace/trace.h"
#include "comm/control/hosts.h"
#include "comm/group/device_comm.h"
#include "comm/group/mismatch.h"
#include "comm/group/watch.h"

int ah_group_rank(const struct ah_group *group)
{
    return group->rank;
}

int ah_group_size(const struct ah_group *group)
{
    return group->size;
}

bool ah_group_communicates(const struct ah_group *group)
{
    return group->size > 1 || group->control;
}

const char *ah_group_backend(const struct ah_group *group)
{
    return group->backend->name;
}

int64_t ah_group_timeout(struct ah_group *group, int64_t set_ns)
{
    if (set_ns > 0)
        group->timeout_ns = set_ns;
    return group->timeout_ns;
}

/* Failure. */

int ah_group_poison(struct ah_group *group, int status)
{
    if (status >= 0 || group->poison)
        return status;
    group->poison = status;
    snprintf(group->poison_text, sizeof group->poison_text, "%s", ah_error_text());
    if (group->control)
        ah_watch_publish(group, status, group->poison_text);
    return status;
}

int ah_group_check_health(struct ah_group *group, const char *name)
{
    if (!group->poison)
        return 0;
    return ah_fail(group->poison, "%s: the group failed before: %s", name, group->poison_text);
}

static int check_health(struct ah_group *group, const struct ah_collective *call)
{
    AH_TRY(ah_group_check_health(group, ah_collective_name(call->kind, call->async)));
    return ah_device_comm_check(group);
}

/* Fail for a work or message that began before its group was restarted. */
static int group_outlived(const struct ah_work *work)
{
    return ah_fail(AH_EPEER, "%s: a collective failed since it began, and its group was restarted",
                   ah_collective_name(work->call.kind, true));
}

/* Posting. */

void ah_work_free(struct ah_work *work, bool complete)
{
    if (work->mover->drop)
        work->mover->drop(work, complete);
    if (work->release)
        work->release(work->held);
    free(work->counts);
    free(work);
}

bool ah_group_has_settled(const struct ah_group *group, uint32_t sequence)
{
    return ah_watch_reached((struct ah_group *)group, AH_DONE, sequence) &&
           (!group->backend->settled || group->backend->settled(group, sequence));
}

/* Free abandoned works that all ranks have completed. */
static void group_sweep(struct ah_group *group)
{
    for (struct ah_work **at = &group->abandoned; *at;) {
        struct ah_work *work = *at;
        if (!ah_group_has_settled(group, work->sequence)) {
            at = &work->next;
            continue;
        }
        *at = work->next;
        ah_work_free(work, true);
    }
}

/* Room for one more post in the ring. */
static int make_room(struct ah_group *group)
{
    uint32_t sequence = group->issued + 1;
    if (group->abandoned)
        group_sweep(group);
    if (sequence - group->ring_safe <= AH_GROUP_CALLS)
        return 0;
    uint32_t needed = sequence - AH_GROUP_CALLS;
    AH_TRY(ah_group_advance(group, needed, true));
    AH_TRY(ah_watch_wait(group, AH_DONE, needed));
    group->ring_safe = needed;
    return 0;
}

static void group_post(struct ah_group *group, const struct ah_collective *call,
                       const struct ah_call_arguments *arguments)
{
    if (arguments->before) {
        group->issued++;
        return;
    }
    struct ah_group_block *mine = group->peer[group->rank];
    struct ah_call_record *entry = ah_group_record(mine, group->issued + 1);
    ah_call_record_fill(entry, call, group->issued + 1, group->size);
    entry->offset = arguments->offset;
    entry->wired = arguments->wired;
    entry->inline_bytes = arguments->inline_bytes;
    entry->own = arguments->own;
    entry->own_bytes = arguments->own_bytes;
    entry->steps = arguments->steps;
    entry->landing = arguments->landing;
    entry->partial = arguments->partial;
    entry->counts = arguments->counts;
    /* Relaxed: for reports of other processes alone, which check the number and may read the one before it. */
    atomic_store_explicit(&ah_rank_entry(group->control, group->member[group->rank])->latest, group->block,
                          memory_order_relaxed);
    atomic_store_explicit(&ah_rank_entry(group->control, group->member[group->rank])->counters.collective_ns,
                          ah_now_ns(), memory_order_relaxed);
    group->issued++;
    ah_group_counter_advance(mine, AH_ISSUED, group->issued);
}

void ah_group_publish_done(struct ah_group *group, uint32_t sequence)
{
    if (group->done == sequence)
        return;
    group->done = sequence;
    if (!ah_reached(ah_group_counter(group->peer[group->rank], AH_DONE), sequence)) /* by the process before */
        ah_group_counter_advance(group->peer[group->rank], AH_DONE, sequence);
}

/* Queue works on their device before the peers have issued them, as far as the order of works allows. They stay in the
 * list until all have issued and agree. */
static int group_carry_ahead(struct ah_group *group)
{
    for (struct ah_work *work = group->first; work; work = work->next) {
        if (work->ahead)
            continue;
        if (!work->call.ahead || !work->mover->carries_ahead)
            return 0;
        AH_TRY(work->mover->carry(work));
        work->ahead = true;
    }
    return 0;
}

/* Combine the ranks' notes and weights. */
static void group_combine(struct ah_work *work)
{
    for (int r = 0; r < work->group->size; r++) {
        const struct ah_call_record *record = ah_group_call_record(work->group, r, work->sequence);
        work->note |= record->note;
        work->weight += record->weight;
    }
}

int ah_group_advance(struct ah_group *group, uint32_t upto, bool block)
{
    while (group->first && ah_reached(upto, group->first->sequence)) {
        struct ah_work *work = group->first;
        if (block)
            AH_TRY(ah_watch_wait(group, AH_ISSUED, work->sequence));
        else if (work->mover->carry_waits || !ah_watch_reached(group, AH_ISSUED, work->sequence))
            return 0;
        if (!work->arguments.before)
            AH_TRY(ah_mismatch_check(group, work->sequence));
        if (!work->mover->issued_is_all)
            group_combine(work);
        if (!work->ahead)
            AH_TRY(work->mover->carry(work));
        ah_group_publish_done(group, work->sequence);
        group->first = work->next;
        if (!group->first)
            group->last = &group->first;
        work->carried = true;
        AH_TRY(group_carry_ahead(group));
        if (work->abandoned) {
            work->next = group->abandoned;
            group->abandoned = work;
        }
    }
    return 0;
}

/* Calls. */

/* Does a call go by the control block? In a group of one those on a device, and the barrier of a captured step. */
static bool group_meets(const struct ah_group *group, const struct ah_collective *call)
{
    bool barrier = group->device_comm && !call->async && ah_collective_is_barrier(call->kind);
    return group->size > 1 || call->device || barrier;
}

static void log_call(struct ah_group *group, const struct ah_collective *call, int64_t begin, const char *what)
{
    char text[256];
    struct ah_call_record entry;
    uint32_t number = group->issued - group->base;
    ah_call_record_fill(&entry, call, number, group->size);
    ah_notice("comm: rank %d of %d%s: #%u %s at %s%s, %.3f ms", group->rank, group->size,
              group->block ? " in a part" : "", number, ah_call_record_describe(&entry, text, sizeof text), entry.where,
              what, (double)(ah_now_ns() - begin) / 1e6);
}

/* Record a call in a profile, under its name: "all_reduce", "all_reduce_async", "wait for a result". */
static void trace_call(struct ah_trace_mark mark, const struct ah_collective *call, const char *name)
{
    ah_trace_leave(mark);
    if (!mark.begin_ns)
        return;
    struct ah_trace_span span = {
        .name = name,
        .begin_ns = mark.begin_ns,
        .end_ns = ah_now_ns(),
        .kind = AH_TRACE_COLLECTIVE,
        .size = ah_collective_is_barrier(call->kind) ? 0 : call->count * (int64_t)ah_dtype_size(call->dtype),
        .site = call->where && ah_trace_options.sites && ah_trace_is_recording() ? ah_trace_text(call->where) : NULL,
    };
    ah_trace_add(&span);
}

static int run_with_peers(struct ah_group *group, const struct ah_collective *call)
{
    const struct ah_backend *backend = ah_group_mover(group, call);
    struct ah_call_arguments arguments = {.offset = AH_NO_OFFSET};
    AH_TRY(make_room(group));
    if (backend->fill_arguments)
        AH_TRY(backend->fill_arguments(group, call, &arguments));
    group_post(group, call, &arguments);
    AH_TRY(ah_group_advance(group, group->issued - 1, true));
    AH_TRY(ah_watch_wait(group, AH_ISSUED, group->issued));
    if (!arguments.before)
        AH_TRY(ah_mismatch_check(group, group->issued));
    if (!ah_collective_is_barrier(call->kind))
        AH_TRY(backend->run(group, call));
    ah_group_publish_done(group, group->issued);
    return 0;
}

int ah_group_run(struct ah_group *group, struct ah_collective call)
{
    call.async = false;
    AH_TRY(ah_collective_check(&call, group->size));
    AH_TRY(check_health(group, &call));
    int64_t begin = group->logs ? ah_now_ns() : 0, timeout_ns = group->timeout_ns;
    group->timeout_ns = call.timeout_ns > 0 ? call.timeout_ns : timeout_ns;
    struct ah_trace_mark mark = ah_trace_begin(ah_collective_name(call.kind, false));
    int status = group_meets(group, &call) ? run_with_peers(group, &call) : group->backend->run(group, &call);
    ah_group_poison(group, status);
    group->timeout_ns = timeout_ns;
    trace_call(mark, &call, ah_collective_name(call.kind, false));
    if (group->logs)
        log_call(group, &call, begin, status < 0 ? " failed" : "");
    return status;
}

/* Works. */

static struct ah_work *new_work(struct ah_group *group, const struct ah_collective *call)
{
    size_t size = (size_t)group->size, n = call->kind == AH_ALL_TO_ALL_V ? size * size : call->counts ? size : 0;
    const struct ah_backend *mover = ah_group_mover(group, call);
    struct ah_work *work = calloc(1, mover->work_bytes);
    int64_t *counts = n ? malloc(n * sizeof *counts) : NULL;
    if (!work || (n && !counts)) {
        free(work);
        free(counts);
        return NULL;
    }
    work->group = group;
    work->mover = mover;
    work->epoch = group->epoch;
    work->call = *call;
    if (n)
        work->call.counts = work->counts = memcpy(counts, call->counts, n * sizeof *counts);
    return work;
}

static int start_with_peers(struct ah_group *group, struct ah_work *work)
{
    AH_TRY(make_room(group));
    work->arguments.offset = AH_NO_OFFSET;
    AH_TRY(work->mover->start(work));
    group_post(group, &work->call, &work->arguments);
    ah_watch_leave(group);
    work->sequence = group->issued;
    *group->last = work;
    group->last = &work->next;
    AH_TRY(group_carry_ahead(group));
    return ah_group_advance(group, group->issued, false);
}

static int start_alone(struct ah_group *group, struct ah_work *work)
{
    work->note = work->call.note;
    work->carried = true;
    return group->backend->run(group, &work->call);
}

/* Remove a work from the queue; only after a failure, or an abandoned one, is it still there. */
static void group_unlist(struct ah_work *work)
{
    struct ah_group *group = work->group;
    for (struct ah_work **at = &group->first; *at; at = &(*at)->next) {
        if (*at != work)
            continue;
        *at = work->next;
        if (!*at)
            group->last = at;
        return;
    }
}

int ah_group_start(struct ah_group *group, struct ah_collective call, struct ah_work **out)
{
    call.async = true;
    AH_TRY(ah_collective_check(&call, group->size));
    AH_TRY(check_health(group, &call));
    int64_t begin = group->logs ? ah_now_ns() : 0;
    struct ah_trace_mark mark = ah_trace_begin(ah_collective_name(call.kind, true));
    struct ah_work *work = new_work(group, &call);
    if (!work) {
        ah_trace_leave(mark);
        return ah_group_poison(group, ah_fail(AH_ENOMEM, "%s: out of memory", ah_collective_name(call.kind, true)));
    }
    int status = group_meets(group, &call) ? start_with_peers(group, work) : start_alone(group, work);
    trace_call(mark, &call, ah_collective_name(call.kind, true));
    /* Of the caller, good for the post only. */
    work->call.size = NULL;
    work->call.ndim = -1;
    work->call.where = "?";
    if (ah_group_poison(group, status) < 0) {
        group_unlist(work);
        ah_work_free(work, false);
        return status;
    }
    if (group->logs)
        log_call(group, &call, begin, " started");
    *out = work;
    return 0;
}

static bool group_complete(struct ah_work *work)
{
    if (!work->carried || !group_meets(work->group, &work->call) || work->mover->issued_is_all)
        return work->carried;
    if (work->call.device)
        return work->group->device_comm->type->ready(work);
    return ah_group_has_settled(work->group, work->sequence);
}

int ah_work_test(struct ah_work *work, bool *done)
{
    struct ah_group *group = work->group;
    if (work->epoch != group->epoch)
        return group_outlived(work);
    AH_TRY(check_health(group, &work->call));
    AH_TRY(ah_group_poison(group, ah_group_advance(group, work->sequence, work->mover->carry_waits)));
    *done = group_complete(work);
    return 0;
}

int ah_work_wait(struct ah_work *work)
{
    return ah_work_wait_note(work, &(uint32_t){0});
}

int ah_work_order(struct ah_work *work, bool *ordered)
{
    *ordered = (work->ahead || work->carried) && work->mover->order && work->epoch == work->group->epoch;
    if (!*ordered)
        return 0;
    AH_TRY(check_health(work->group, &work->call));
    return ah_group_poison(work->group, work->mover->order(work));
}

static int group_await(struct ah_work *work)
{
    struct ah_group *group = work->group;
    AH_TRY(ah_group_advance(group, work->sequence, true));
    /* The device's own queue orders its work. */
    return work->call.device || work->mover->issued_is_all ? 0 : ah_watch_wait(group, AH_DONE, work->sequence);
}

int ah_work_wait_note(struct ah_work *work, uint32_t *note)
{
    struct ah_group *group = work->group;
    if (work->epoch != group->epoch) {
        int status = group_outlived(work);
        ah_work_free(work, true);
        return status;
    }
    int status = check_health(group, &work->call);
    struct ah_trace_mark mark = ah_trace_begin("wait for a result");
    bool meets = group_meets(group, &work->call);
    if (status == 0 && meets)
        status = ah_group_poison(group, group_await(work));
    trace_call(mark, &work->call, "wait for a result");
    *note = work->note;
    if (status == 0 && meets && work->mover->finish)
        status = ah_group_poison(group, work->mover->finish(work));
    if (status < 0)
        group_unlist(work);
    if (group->issued != work->sequence)
        ah_watch_leave(group); /* other works are pending */
    ah_work_free(work, status == 0);
    return status;
}

void ah_work_abandon(struct ah_work *work)
{
    ah_work_abandon_held(work, NULL, NULL);
}

void ah_work_abandon_held(struct ah_work *work, void (*release)(void *held), void *held)
{
    struct ah_group *group = work->group;
    work->release = release;
    work->held = held;
    if (work->epoch != group->epoch) {
        ah_work_free(work, true);
        return;
    }
    bool failed = group->poison || ah_group_poison(group, ah_group_advance(group, group->issued, false)) < 0;
    if (failed || group_complete(work)) {
        if (failed)
            group_unlist(work);
        ah_work_free(work, !failed);
        return;
    }
    /* Peers depend on it, and on the memory it names: it is freed when all have completed it. */
    work->abandoned = true;
    if (work->carried) {
        work->next = group->abandoned;
        group->abandoned = work;
    }
}

void ah_group_forget_works(struct ah_group *group)
{
    for (struct ah_work *work = group->first, *next; work; work = next) {
        next = work->next;
        work->next = NULL;
        if (work->abandoned)
            ah_work_free(work, true);
    }
    for (struct ah_work *work = group->abandoned, *next; work; work = next) {
        next = work->next;
        ah_work_free(work, true);
    }
    group->first = group->abandoned = NULL;
    group->last = &group->first;
}

/* Memory. */

int ah_group_alloc(struct ah_group *group, size_t bytes, void **out)
{
    return group->backend->alloc(group, bytes, out);
}

void ah_group_free(struct ah_group *group, void *memory, size_t bytes)
{
    if (memory)
        group->backend->free(group, memory, bytes);
}

void ah_group_discard(struct ah_group *group, void *memory, size_t bytes)
{
    if (group->backend->discard)
        group->backend->discard(group, memory, bytes);
    else if (bytes)
        memset(memory, 0, bytes);
}

int ah_group_host(const struct ah_group *group, int rank)
{
    const struct ah_hosts *hosts = group->control ? group->control->hosts : NULL;
    return hosts ? ah_hosts_of(hosts, group->member[rank]) : 0;
}

int ah_group_share(struct ah_group *group, size_t bytes, const char *where, void **out)
{
    if (group->size == 1)
        return ah_group_alloc(group, bytes, out);
    if (!group->backend->lend)
        return ah_fail(AH_ENOTIMPL, "the %d ranks of this group of %s have no memory in common", group->size,
                       group->backend->name);
    int lender = group->rank, holders = 0;
    while (lender > 0 && ah_group_host(group, lender - 1) == ah_group_host(group, group->rank))
        lender--;
    for (int r = 0; r < group->size; r++)
        holders += ah_group_host(group, r) == ah_group_host(group, group->rank);
    int64_t answer[2] = {0}, *answers = malloc((size_t)group->size * sizeof answer); /* statuses, and where it is */
    AH_TRY_MEMORY(answers, "out of memory for an answer of each rank");
    if (group->rank == lender) {
        uint64_t offset = AH_NO_OFFSET;
        answer[0] = group->backend->lend(group, bytes, holders, &offset);
        answer[1] = (int64_t)offset;
    }
    struct ah_collective call = ah_collective_all_gather(answers, answer, 2, AH_I64);
    call.purpose = AH_FOR_PREPARE;
    call.where = where;
    int status = ah_group_run(group, call);
    for (int r = 0; status == 0 && r < group->size; r++)
        if (answers[2 * r] < 0)
            status = ah_fail((int)answers[2 * r], "rank %d has no memory for %zu bytes in common", r, bytes);
    if (status == 0)
        *out = group->backend->borrow(group, lender, (uint64_t)answers[2 * lender + 1]);
    free(answers);
    return status;
}

void ah_group_unshare(struct ah_group *group, void *memory, size_t bytes)
{
    if (group->size == 1)
        ah_group_free(group, memory, bytes);
    else if (memory)
        group->backend->give_back(group, memory, bytes);
}
