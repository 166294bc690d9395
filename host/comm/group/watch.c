/* A wait polls a counter some 2,000 times, then sleeps on it in slices of 50 ms, and between slices checks everything
 * that could keep the counter from moving. Only time in which this process ran counts: a slice that lasted much longer
 * means that the whole job was stopped. Nor does time count in which a rank is being replaced.
 *
 * All ranks report one event alike: a timeout names the rank that is furthest behind. Ranks in texts are those of the
 * job. */
#include "comm/group/watch.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory/alloc.h"
#include "base/process/relax.h"
#include "base/process/signals.h"
#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm/control/hosts.h"
#include "comm/control/rank_status.h"
#include "comm/group/device_comm.h"
#include "comm/group/mismatch.h"
#include "comm/group/status_text.h"

static const int64_t slice_ns = 50 * 1000000;          /* longest sleep between two checks of the peers */
static const int64_t short_slice_ns = 1000000;         /* while messages wait for this rank's device */
static const int64_t longest_slice_ns = 200 * 1000000; /* in longer ones this process was not running */
static const uint32_t long_inline = 8 * 1024; /* bytes assumed under way although all have arrived already */
static const int64_t witness_ns = 500 * 1000000;       /* for notifications of a rank that is lost */
static const int64_t glance_ns = 500000;               /* between two such checks */
static const int64_t spin_ns = 100 * 1000000; /* by then a rank that yields its core sleeps: a busy machine has many */

void ah_watch_relax(struct ah_group *group)
{
    if (group->backend->attend) {
        group->backend->attend(group);
        return;
    }
    ah_relax();
}

bool ah_watch_spin(struct ah_group *group, struct ah_spin *spin)
{
    int64_t now = group->backend->attend ? ah_now_ns() : 0;
    if (spin->left <= 0 || (spin->end_ns && now > spin->end_ns))
        return false;
    spin->left--;
    spin->end_ns = now && !spin->end_ns ? now + spin_ns : spin->end_ns;
    ah_watch_relax(group);
    return true;
}

void ah_watch_leave(struct ah_group *group)
{
    if (group->backend->leave)
        group->backend->leave(group);
}

static inline uint32_t counter_of(const struct ah_group *group, int rank, enum ah_counter which)
{
    return ah_group_counter(group->peer[rank], which);
}

static struct ah_rank_entry *slot_of(const struct ah_group *group, int rank)
{
    return ah_rank_entry(group->control, group->member[rank]);
}

const char *ah_watch_title(struct ah_group *group, uint32_t sequence, char *text, size_t bytes)
{
    const char *name = ah_call_record_name(ah_group_call_record(group, group->rank, sequence));
    if (group->block)
        snprintf(text, bytes, "%s #%u of group %d", name, sequence - group->base, group->block);
    else
        snprintf(text, bytes, "%s #%u", name, sequence - group->base);
    return text;
}

/* Peers that do not call. */

/* The call that a wait is for. */
static uint32_t watch_awaited_call(struct ah_group *group, enum ah_counter which, uint32_t target)
{
    return which == AH_ISSUED || which == AH_DONE ? target : group->issued;
}

/* "all_reduce #2 at train.lua:7" */
static const char *own_call(struct ah_group *group, uint32_t sequence, char *text, size_t bytes)
{
    char title[80];
    snprintf(text, bytes, "%s at %s", ah_watch_title(group, sequence, title, sizeof title),
             ah_group_call_record(group, group->rank, sequence)->where);
    return text;
}

static int watch_fail_lost(struct ah_group *group, int rank, const char *call, bool gave_up)
{
    char where[240], place[AH_STATUS_TEXT_HOST];
    struct ah_rank_entry *slot = slot_of(group, rank);
    int member = group->member[rank];
    ah_status_text(group, rank, where, sizeof where);
    ah_status_text_host(group, rank, place);
    if (gave_up)
        return ah_fail(AH_EPEER, "%s: rank %d left the group: %s%s", call, member, slot->group_text, place);
    switch (atomic_load(&slot->state)) {
    case AH_RANK_RUNNING:
    case AH_RANK_RETURNING:
        return ah_fail(AH_EPEER, "%s: rank %d ended this line without it (%s)", call, member, where);
    case AH_RANK_ENDED: return ah_fail(AH_EPEER, "%s: rank %d ended without it (%s)", call, member, where);
    case AH_RANK_DIED:
        return ah_fail(AH_EPEER, "%s: lost rank %d, which died%s%.*s (%s)", call, member, slot->text[0] ? ": " : "",
                       (int)strcspn(slot->text, "\n"), slot->text, where);
    default:
        return ah_fail(AH_EPEER, "%s: lost rank %d, which failed: %.*s%s", call, member,
                       (int)strcspn(slot->text, "\n"), slot->text, place);
    }
}

/* At a prompt: is the rank through with the line that this one is in? `line` is this rank's own, hence relaxed. */
static bool is_through(struct ah_group *group, int rank)
{
    int line = atomic_load_explicit(&slot_of(group, group->rank)->line, memory_order_relaxed);
    return line && atomic_load(&slot_of(group, rank)->line_done) >= line;
}

/* Has the rank left, or given up this group? */
static bool is_lost(struct ah_group *group, int rank, bool *gave_up)
{
    struct ah_rank_entry *slot = slot_of(group, rank);
    ah_control_lost(group->control, group->member[rank]);
    /* In this order: a rank that leaves the group and then ends writes them in the other one. */
    int state = atomic_load(&slot->state), group_status = atomic_load(&slot->group_status);
    *gave_up = group_status && state != AH_RANK_DIED;
    bool lives = state == AH_RANK_RUNNING || state == AH_RANK_RETURNING;
    return !lives || group_status || is_through(group, rank);
}

/* Of the peers that have not done their part of the call and never will: one that is lost, or -1 and *quitter one that
 * only left the group, possibly because of the former; -1: none. */
static int find_lost(struct ah_group *group, uint32_t sequence, int *quitter)
{
    *quitter = -1;
    for (int r = 0; r < group->size; r++) {
        bool gave_up;
        if (r == group->rank || !is_lost(group, r, &gave_up) || ah_reached(counter_of(group, r, AH_DONE), sequence))
            continue;
        if (!gave_up)
            return r;
        *quitter = *quitter < 0 ? r : *quitter;
    }
    return -1;
}

/* The same, with a short wait for the report of a rank that is lost: another host may first receive that a rank left
 * because of it. */
static int await_lost(struct ah_group *group, uint32_t sequence, int *quitter)
{
    for (int64_t start = ah_now_ns();; nanosleep(&(struct timespec){.tv_nsec = glance_ns}, NULL)) {
        int lost = find_lost(group, sequence, quitter);
        if (lost >= 0 || *quitter < 0 || atomic_load(&slot_of(group, *quitter)->group_status) != AH_EPEER ||
            ah_now_ns() - start >= witness_ns)
            return lost;
    }
}

static int check_peers(struct ah_group *group, enum ah_counter which, uint32_t target)
{
    uint32_t sequence = watch_awaited_call(group, which, target);
    char call[160];
    int quitter, lost = await_lost(group, sequence, &quitter);
    if (lost < 0 && quitter < 0)
        return 0;
    return watch_fail_lost(group, lost < 0 ? quitter : lost, own_call(group, sequence, call, sizeof call), lost < 0);
}

/* Whom all others wait for: of the other ranks the one that is furthest behind. */
static int watch_laggard(struct ah_group *group, enum ah_counter which)
{
    int last = -1;
    uint32_t least = 0;
    for (int r = 0; r < group->size; r++) {
        uint32_t value = counter_of(group, r, which);
        if (r == group->rank || (last >= 0 && ah_reached(value, least)))
            continue;
        last = r;
        least = value;
    }
    return last;
}

/* A beat and a half late, a host's first rank no longer reports the progress of the host's other ranks: then it is the
 * one to name. Beats are a fifth of the longest silence. */
static bool is_silent(struct ah_group *group, int64_t silent_ns)
{
    int64_t longest_ns = atomic_load(&group->control->header->heartbeat_timeout_ns);
    return longest_ns && silent_ns > longest_ns / 10 * 3;
}

/* Return the silent host that keeps a group from continuing, or -1: the own one, or that of a member, unless a rank of
 * this host is late anyway. `peer`: all wait for that one; -1: for any. */
static int silent_host(const struct ah_watch *watch, struct ah_group *group, int late, int peer, int64_t *silent_ns)
{
    const struct ah_hosts *hosts = group->control->hosts;
    bool late_here = ah_control_is_local(group->control, group->member[late]) &&
                     !ah_reached(counter_of(group, late, AH_ISSUED), group->issued);
    for (int r = 0; hosts && r < group->size; r++) {
        if ((peer >= 0 && r != peer) || ah_control_is_local(group->control, group->member[r]))
            continue;
        *silent_ns = watch->waited - watch->beat_at;
        if (is_silent(group, *silent_ns))
            return hosts->mine;
        int host = ah_hosts_of(hosts, group->member[r]);
        *silent_ns = (int64_t)atomic_load(&ah_rank_entry(group->control, hosts->first[host])->silent_ms) * 1000000;
        if (!late_here && is_silent(group, *silent_ns))
            return host;
    }
    return -1;
}

/* Whom a wait is for, in words; *blamed: its number in the job. "rank 2, which speaks for host node2, has been silent
 * for 3 s", where its host's ranks are not heard of. */
static const char *watch_culprit(const struct ah_watch *watch, struct ah_group *group, int late, int peer, int *blamed,
                                 char *text, size_t bytes)
{
    const struct ah_hosts *hosts = group->control->hosts;
    char status[AH_COUNTERS_TEXT];
    int64_t silent_ns = 0;
    int host = silent_host(watch, group, late, peer, &silent_ns);
    *blamed = host < 0 ? group->member[late] : hosts->first[host];
    if (host < 0)
        return ah_status_text_now(group, late, text, bytes);
    ah_rank_status(ah_rank_entry(group->control, *blamed), 0, status, sizeof status);
    snprintf(text, bytes, "rank %d, which speaks for host %s, has been silent for %.3g s%s%s", *blamed,
             hosts->name[host], (double)silent_ns / 1e9, status[0] ? "; now it " : "", status);
    return text;
}

/* Has the call timed out, or is a stall warning due? Of warnings one for each place at which the job gets stuck, from
 * whichever rank has waited longest. */
static int check_time(struct ah_watch *watch, struct ah_group *group, int late, int peer, const char *call)
{
    char missing[400];
    int blamed;
    bool over = watch->waited >= group->timeout_ns;
    if (!over && (watch->reported || watch->waited < group->stall_warning_ns))
        return 0;
    watch->reported = true;
    if (!over && !ah_control_first_to_report(group->control, group->member[late], counter_of(group, late, AH_ISSUED)))
        return 0;
    watch_culprit(watch, group, late, peer, &blamed, missing, sizeof missing);
    if (over) {
        atomic_store(&slot_of(group, group->rank)->blamed, blamed);
        return ah_fail(AH_ETIMEOUT, "%s: timed out after %.3g s: %s", call, (double)group->timeout_ns / 1e9, missing);
    }
    ah_notice("%s: rank %d has waited %.3g s: %s", call, group->member[group->rank],
              (double)group->stall_warning_ns / 1e9, missing);
    return 0;
}

/* Of a call on a device, or a message that it moves. */
static int timed_out(struct ah_group *group, int rank, const char *call, int64_t timeout_ns)
{
    char where[400];
    atomic_store(&slot_of(group, group->rank)->blamed, group->member[rank]);
    return ah_fail(AH_ETIMEOUT, "%s: timed out after %.3g s: %s", call, (double)timeout_ns / 1e9,
                   ah_status_text_now(group, rank, where, sizeof where));
}

/* "ranks 1, 3 did not come", or the first of them alone. */
static int name_missing(struct ah_group *group, uint32_t sequence)
{
    char list[256], where[400], call[160], *at = list, *end = list + sizeof list;
    bool all = ah_group_call_record(group, group->rank, sequence)->note;
    int missing = 0, first = 0;
    for (int r = group->size - 1; r >= 0; r--)
        if (!ah_reached(counter_of(group, r, AH_ISSUED), sequence))
            first = r;
    for (int r = first; r < group->size && (all || r == first) && end - at > 8; r++)
        if (!ah_reached(counter_of(group, r, AH_ISSUED), sequence))
            at += snprintf(at, (size_t)(end - at), missing++ ? ", %d" : "%d", group->member[r]);
    atomic_store(&slot_of(group, group->rank)->blamed, group->member[first]);
    return ah_fail(AH_ETIMEOUT, "%s: rank%s %s did not arrive within %.3g s: %s",
                   own_call(group, sequence, call, sizeof call), missing == 1 ? "" : "s", list,
                   (double)group->timeout_ns / 1e9, ah_status_text_now(group, first, where, sizeof where));
}

/* Is a rank being replaced, whom all wait for? Relaxed: the deadline is extended, a later check finds it. */
static bool is_short(struct ah_group *group)
{
    for (int r = 0; r < group->size; r++)
        if (atomic_load_explicit(&slot_of(group, r)->state, memory_order_relaxed) == AH_RANK_RETURNING)
            return true;
    return false;
}

static void count_time(struct ah_watch *watch, struct ah_group *group)
{
    int64_t now = ah_now_ns(), passed = watch->before ? now - watch->before : 0;
    watch->before = now;
    if (!is_short(group))
        watch->waited += passed < longest_slice_ns ? passed : longest_slice_ns;
}

/* Every waiting rank, for any counter, does its part of the pending messages. */
static int move_messages(struct ah_group *group)
{
    return group->outgoing || group->incoming ? ah_message_progress(group) : 0;
}

/* Ctrl-C at a prompt. */
static int heed_interrupt(struct ah_group *group, uint32_t sequence)
{
    char call[160];
    if (!ah_interrupted)
        return 0;
    ah_interrupted = AH_INTERRUPT_HEEDED;
    return ah_fail(AH_EINTR, "%s: interrupted", own_call(group, sequence, call, sizeof call));
}

/* Of several hosts: does the own one's leader still replica the others? Only time in which this process ran counts. */
static int check_replica(struct ah_watch *watch, struct ah_group *group, const char *call)
{
    struct ah_control_header *header = group->control->header;
    int64_t heartbeat_timeout_ns = atomic_load(&header->heartbeat_timeout_ns);
    uint32_t beats = atomic_load(&header->beats);
    if (beats != watch->beats || !heartbeat_timeout_ns) {
        watch->beats = beats;
        watch->beat_at = watch->waited;
    }
    if (watch->waited - watch->beat_at <= heartbeat_timeout_ns)
        return 0;
    atomic_store(&slot_of(group, group->rank)->blamed, header->first);
    return ah_fail(AH_EPEER, "%s: rank %d, which speaks for host %s, has been silent for %.3g s", call, header->first,
                   group->control->hosts->name[group->control->hosts->mine], (double)heartbeat_timeout_ns / 1e9);
}

int ah_watch_look(struct ah_watch *watch, struct ah_group *group, enum ah_counter which, uint32_t target)
{
    char call[160];
    uint32_t sequence = watch_awaited_call(group, which, target);
    count_time(watch, group);
    AH_TRY(heed_interrupt(group, sequence));
    AH_TRY(move_messages(group));
    AH_TRY(ah_device_comm_check(group));
    if (which == AH_ISSUED)
        AH_TRY(ah_mismatch_check(group, target));
    int lost = check_peers(group, which, target);
    if (lost < 0 && which == AH_ISSUED) /* the peer may have issued its call, and left, since the check above */
        AH_TRY(ah_mismatch_check(group, target));
    AH_TRY(lost);
    bool monitored =
        which == AH_ISSUED && ah_group_call_record(group, group->rank, sequence)->kind == AH_MONITORED_BARRIER;
    own_call(group, sequence, call, sizeof call);
    AH_TRY(check_replica(watch, group, call));
    if (monitored && watch->waited >= group->timeout_ns)
        return name_missing(group, sequence);
    return check_time(watch, group, watch_laggard(group, which), -1, call);
}

int ah_watch_peer(struct ah_watch *watch, struct ah_group *group, int peer, const char *call)
{
    int lost = 0, last = peer;
    bool gave_up = false;
    count_time(watch, group);
    if (ah_interrupted) {
        ah_interrupted = AH_INTERRUPT_HEEDED;
        return ah_fail(AH_EINTR, "%s: interrupted", call);
    }
    for (int r = 0; r < group->size; r++) {
        if (r == group->rank || (peer >= 0 && r != peer) || !is_lost(group, r, &gave_up))
            continue;
        last = r;
        lost++;
    }
    if (lost == (peer < 0 ? group->size - 1 : 1))
        return watch_fail_lost(group, last, call, gave_up);
    AH_TRY(check_replica(watch, group, call));
    return check_time(watch, group, peer < 0 ? watch_laggard(group, AH_ISSUED) : peer, peer, call);
}

/* Calls on a device. */

/* Return the rank that keeps a call from completing, of those that have begun it: one that is stopped, or -1. */
static int stopped_rank(struct ah_group *group)
{
    char status[AH_COUNTERS_TEXT];
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && strstr(ah_rank_status(slot_of(group, r), 0, status, sizeof status), "stopped"))
            return r;
    return -1;
}

int ah_watch_device(struct ah_group *group, uint32_t sequence, const char *call, int64_t waited_ns,
                    int64_t timeout_ns)
{
    int last = watch_laggard(group, AH_DONE), quitter = -1;
    for (int r = 0; r < group->size; r++) {
        bool gave_up;
        if (r == group->rank || !is_lost(group, r, &gave_up))
            continue;
        if (!gave_up)
            return watch_fail_lost(group, r, call, false);
        quitter = r;
    }
    if (quitter >= 0)
        return watch_fail_lost(group, quitter, call, true);
    if (waited_ns < timeout_ns)
        return 0;
    AH_TRY(ah_mismatch_check(group, sequence)); /* of a call that was queued ahead of the peers' posts */
    if (last >= 0 && ah_reached(counter_of(group, last, AH_DONE), sequence))
        last = stopped_rank(group);
    if (last >= 0)
        return timed_out(group, last, call, timeout_ns);
    return ah_fail(AH_ETIMEOUT, "%s: timed out after %.3g s on the device; all ranks have begun it", call,
                   (double)timeout_ns / 1e9);
}

int ah_watch_message(struct ah_group *group, int peer, const char *call, int64_t waited_ns, int64_t timeout_ns)
{
    bool gave_up;
    if (is_lost(group, peer, &gave_up))
        return watch_fail_lost(group, peer, call, gave_up);
    return waited_ns < timeout_ns ? 0 : timed_out(group, peer, call, timeout_ns);
}

void ah_watch_publish(struct ah_group *group, int status, const char *text)
{
    struct ah_rank_entry *slot = slot_of(group, group->rank);
    if (atomic_load(&slot->group_status))
        return;
    snprintf(slot->group_text, sizeof slot->group_text, "%.*s", (int)sizeof slot->group_text - 1, text);
    atomic_store(&slot->group_status, status);
    ah_control_wake(group->control);
}

/* Waiting. */

static int sleep_for(struct ah_group *group, int rank, enum ah_counter which, uint32_t target)
{
    struct ah_watch watch = {0};
    for (;;) {
        uint32_t seen = counter_of(group, rank, which);
        if (ah_reached(seen, target))
            return 0;
        AH_TRY(ah_watch_look(&watch, group, which, target));
        if (atomic_load_explicit(&slot_of(group, rank)->counters.collects, memory_order_relaxed))
            ah_block_join();
        int64_t left = group->timeout_ns - watch.waited;
        int64_t slice = group->outgoing && group->outgoing->far ? short_slice_ns : slice_ns;
        ah_group_sleep(group->peer[rank], which, seen, left < slice ? left : slice);
    }
}

static int wait_slowly(struct ah_group *group, int rank, enum ah_counter which, uint32_t target)
{
    ah_watch_leave(group);
    atomic_store_explicit(&ah_counters->waits, 1, memory_order_relaxed);
    int status = sleep_for(group, rank, which, target);
    atomic_store_explicit(&ah_counters->waits, 0, memory_order_relaxed);
    return status;
}

int ah_watch_wait(struct ah_group *group, enum ah_counter which, uint32_t target)
{
    if (which == AH_ISSUED && group->backend->attend &&
        ah_group_call_record(group, group->rank, target)->inline_bytes >= long_inline)
        ah_watch_relax(group);
    for (int r = 0; r < group->size; r++) {
        if (r == group->rank)
            continue;
        struct ah_spin spin = {.left = group->spins};
        while (!ah_reached(counter_of(group, r, which), target) && ah_watch_spin(group, &spin))
            continue;
        if (!ah_reached(counter_of(group, r, which), target))
            AH_TRY(wait_slowly(group, r, which, target));
    }
    return 0;
}

bool ah_watch_reached(struct ah_group *group, enum ah_counter which, uint32_t target)
{
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && !ah_reached(counter_of(group, r, which), target))
            return false;
    return true;
}
