/* The backend for ranks of several hosts: shared memory within a host, a progress thread between them.
 *
 * Small calls need nothing but the control block: every rank's input is sent with its post (replica.h) and stored at
 * its place of the rank's segment on every host, so each rank does its part as if all were here. A larger call is
 * wired: inputs, and room for data from other hosts, are in the segments; the ranks of a host copy from each other, or
 * form their host's sum, slice by slice in rank order, and the progress thread (progress.h) does the rest meanwhile. A
 * rank's ROUND is the number of the last completed wired call. Sums of hosts are added in the order of the hosts, those
 * of fp16 and bf16 as float32. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/trace/time.h"
#include "comm/control/combine.h"
#include "comm/net/hold.h"
#include "comm/net/progress.h"
#include "comm/net/team.h"
#include "comm/shm/shm.h"

struct spread_group {
    struct shm_group shm;
    struct ah_team team;
    struct ah_holder holder;
    struct ah_member_table *member_table;
    void *member_tables[AH_MAX_GROUPS]; /* of a root: of each group block that was ever used */
    uint32_t last_wired, steps;
    bool has_wired;
    struct ah_hold blocking; /* of the blocking call that is on */
    struct ah_replica *replica;   /* of a root in a leader */
    struct ah_progress *progress;
};

struct spread_work {
    struct ah_work base;
    struct ah_hold hold;
};

static struct spread_group *spread_of(const struct ah_group *group)
{
    return (struct spread_group *)group;
}

static size_t width_of(const struct ah_collective *call)
{
    return ah_dtype_size(call->dtype);
}

/* Waiting. */

static bool spread_attend(struct ah_group *group)
{
    struct spread_group *root = spread_of(group->root);
    bool moved = root->replica && ah_replica_attend(root->replica);
    moved |= root->progress && ah_progress_attend(root->progress);
    if (!moved)
        sched_yield();
    return moved;
}

static void spread_leave(struct ah_group *group)
{
    struct spread_group *root = spread_of(group->root);
    if (root->replica)
        ah_replica_leave(root->replica);
    if (root->progress)
        ah_progress_leave(root->progress);
}

static int spread_lost(const char *title, int rank, const struct ah_rank_entry *entry)
{
    return ah_fail(AH_EPEER, "%s: lost rank %d, which %s: %.*s", title, rank,
                   atomic_load(&entry->state) == AH_RANK_DIED ? "died" : "failed", (int)strcspn(entry->text, "\n"),
                   entry->text);
}

/* Did the rank die or fail by itself, not because of a lost peer? */
static bool is_cause(const struct ah_rank_entry *entry)
{
    int state = atomic_load(&entry->state);
    return state == AH_RANK_DIED || (state == AH_RANK_FAILED && !atomic_load(&entry->victim));
}

/* A rank that is the cause of a loss, -1: none. The leader of a host ends when a peer of it is lost, and its end may be
 * reported before that loss, so this waits for a second. */
static int await_lost_rank(struct ah_control_block *control)
{
    static const int64_t most_ns = 1000000000, glance_ns = 1000000;
    for (int64_t begin = ah_now_ns();; nanosleep(&(struct timespec){.tv_nsec = glance_ns}, NULL)) {
        for (int r = 0; r < control->size; r++)
            if (is_cause(ah_rank_entry(control, r)))
                return r;
        if (ah_now_ns() - begin >= most_ns)
            return -1;
    }
}

/* A leader has left, and not all of its host's data has been received: name the rank that is the cause, or report why
 * the leader left. */
static int leader_left(struct ah_control_block *control, int host, const char *title)
{
    int leader = control->hosts->first[host], cause = await_lost_rank(control);
    const struct ah_rank_entry *entry = ah_rank_entry(control, leader);
    if (cause >= 0)
        return spread_lost(title, cause, ah_rank_entry(control, cause));
    if (atomic_load(&entry->state) == AH_RANK_FAILED)
        return spread_lost(title, leader, entry);
    if (atomic_load(&entry->group_status))
        return ah_fail(AH_EPEER, "%s: rank %d left the group: %s", title, leader, entry->group_text);
    return ah_fail(AH_EPEER, "%s: rank %d, which speaks for host %s, has ended", title, leader,
                   control->hosts->name[host]);
}

/* The leaders move the bytes, whether or not they are in the group. One that has ended may have sent all before. */
static int check_leaders(struct spread_group *s, uint32_t sequence)
{
    struct ah_control_block *control = s->shm.base.control;
    int first = s->team.ranks[0];
    const struct ah_member_table *member_table =
        (void *)(shm_segment(&s->shm, first) + atomic_load(&s->shm.base.peer[first]->member_table));
    char title[80];
    for (int i = 0; i < s->team.hosts; i++) {
        int leader = control->hosts->first[s->team.host[i]];
        struct ah_rank_entry *slot = ah_rank_entry(control, leader);
        if (leader != s->shm.base.member[s->shm.base.rank] && ah_control_is_local(control, leader))
            ah_control_lost(control, leader);
        int state = atomic_load(&slot->state);
        ah_watch_title(&s->shm.base, sequence, title, sizeof title);
        if (is_cause(slot))
            return spread_lost(title, leader, slot);
        if (state == AH_RANK_FAILED ||
            (state == AH_RANK_ENDED && atomic_load(&member_table->lost) == s->team.host[i] + 1))
            return leader_left(control, s->team.host[i], title);
    }
    return 0;
}

static bool is_through(const struct spread_group *s, uint32_t sequence)
{
    return ah_reached(ah_group_counter(s->shm.base.peer[s->shm.base.rank], AH_ROUND), sequence);
}

static int await_progress(struct spread_group *s, uint32_t sequence)
{
    static const int64_t slice_ns = 50 * 1000000;
    struct ah_group_block *mine = s->shm.base.peer[s->shm.base.rank];
    struct ah_watch watch = {0};
    struct ah_spin spin = {.left = s->shm.base.spins};
    while (!is_through(s, sequence) && ah_watch_spin(&s->shm.base, &spin))
        continue;
    ah_watch_leave(&s->shm.base);
    for (;;) {
        uint32_t seen = ah_group_counter(mine, AH_ROUND);
        if (ah_reached(seen, sequence))
            return 0;
        AH_TRY(check_leaders(s, sequence));
        AH_TRY(ah_watch_look(&watch, &s->shm.base, AH_DONE, sequence));
        ah_group_sleep(mine, AH_ROUND, seen, slice_ns);
    }
}

static bool spread_settled(const struct ah_group *group, uint32_t sequence)
{
    const struct spread_group *s = spread_of(group);
    if (!s->has_wired || is_through(s, s->last_wired))
        return true;
    for (int i = 0; i < AH_GROUP_CALLS; i++) {
        uint32_t wired = atomic_load(&s->member_table->wired[i]);
        if (wired && ah_reached(sequence, wired) && !is_through(s, wired))
            return false;
    }
    return true;
}

/* A call. */

/* Wait until the progress thread has completed the post whose place the next one uses. */
static int claim_record(struct spread_group *s)
{
    atomic_uint *place = &s->member_table->wired[(s->shm.base.issued + 1) % AH_GROUP_CALLS];
    uint32_t wired = atomic_load(place);
    if (wired && ah_reached(s->shm.base.issued, wired) && ah_reached(wired, s->shm.base.base + 1))
        AH_TRY(await_progress(s, wired));
    atomic_store(place, 0);
    return 0;
}

/* Before the post: fill in this rank's memory for the call record. */
static int spread_prepare(struct spread_group *s, const struct ah_collective *call, struct ah_hold *hold,
                          struct ah_call_arguments *out)
{
    uint32_t sequence = s->shm.base.issued + 1;
    AH_TRY(claim_record(s));
    *out = (struct ah_call_arguments){.offset = AH_NO_OFFSET, .wired = ah_team_wires(&s->team, call),
                                      .steps = s->steps};
    if (ah_collective_is_barrier(call->kind))
        return 0;
    if (!out->wired) {
        struct ah_part own = ah_collective_own(call, s->team.size, s->shm.base.rank);
        AH_TRY(ah_hold_input(&s->holder, call, call->kind == AH_ALL_REDUCE, hold, out));
        out->inline_bytes =
            (uint32_t)((size_t)ah_collective_input(call, s->team.size, s->shm.base.rank) * width_of(call));
        out->own = (uint32_t)((size_t)own.first * width_of(call));
        out->own_bytes = (uint32_t)((size_t)own.count * width_of(call));
        return 0;
    }
    AH_TRY(ah_hold_wired(&s->holder, call, hold, out));
    s->last_wired = sequence;
    atomic_store(&s->member_table->wired[sequence % AH_GROUP_CALLS], sequence);
    s->has_wired = true;
    s->steps += (uint32_t)ah_team_pieces(&s->team, call);
    return 0;
}

/* This rank's slice of its host's sum of elements [begin, end). */
static void add_slice(struct spread_group *s, const struct ah_collective *call, uint32_t sequence, int64_t begin,
                      int64_t end)
{
    int64_t from, to;
    int mine = 0;
    size_t width = width_of(call), sum_width = ah_team_width(&s->team, call);
    const void *source[AH_MAX_RANKS];
    while (s->team.ranks[mine] != s->shm.base.rank)
        mine++;
    ah_team_slice(end - begin, mine, s->team.local, sum_width, &from, &to);
    if (from == to)
        return;
    for (int i = 0; i < s->team.local; i++)
        source[i] = shm_segment(&s->shm, s->team.ranks[i]) +
                    ah_group_call_record(&s->shm.base, s->team.ranks[i], sequence)->offset +
                    (size_t)(begin + from) * width;
    int first = s->team.ranks[0];
    void *sum = shm_segment(&s->shm, first) + ah_group_call_record(&s->shm.base, first, sequence)->partial +
                (size_t)(begin + from) * sum_width;
    ah_combine_as(call->dtype, ah_team_sums(&s->team, call), call->reduce == AH_REDUCE_MEAN ? AH_REDUCE_SUM
                  : call->reduce, &sum, 1, source, s->team.local, to - from, 1);
}

static void spread_advance(struct spread_group *s, uint32_t steps)
{
    ah_group_counter_advance(s->shm.base.peer[s->shm.base.rank], AH_SLICED, steps);
}

static bool is_here(const struct ah_group *group, int rank)
{
    return spread_of(group)->team.at[rank] == spread_of(group)->team.mine;
}

/* The own part of a wired call that all ranks have issued; `wanted`: the result. */
static void spread_contribute(struct spread_group *s, const struct ah_collective *call, uint32_t sequence, bool wanted)
{
    int64_t count = ah_collective_input(call, s->team.size, s->shm.base.rank);
    int64_t pieces = ah_team_pieces(&s->team, call);
    int64_t piece = call->kind == AH_ALL_REDUCE ? ah_team_piece(&s->team, call) : count;
    bool adds = ah_collective_reduces(call) && (s->team.local > 1 || ah_team_sums(&s->team, call) != call->dtype);
    uint32_t before = ah_group_call_record(&s->shm.base, s->shm.base.rank, sequence)->steps;
    s->member_table->divisor[sequence % AH_GROUP_CALLS] = shm_divisor(&s->shm, sequence);
    if (!ah_collective_reduces(call) && wanted)
        shm_take_parts(&s->shm, call, sequence, is_here);
    for (int64_t p = 0; p < pieces && adds; p++) {
        add_slice(s, call, sequence, p * piece, (p + 1) * piece < count ? (p + 1) * piece : count);
        spread_advance(s, before + (uint32_t)p + 1);
    }
    if (!adds)
        spread_advance(s, before + (uint32_t)pieces);
}

/* Copy the data from other hosts to its destination. */
static void spread_collect(struct spread_group *s, const struct ah_collective *call, const struct ah_hold *hold)
{
    size_t width = width_of(call);
    if (call->kind == AH_ALL_REDUCE && hold->copy)
        memcpy(call->out, hold->copy, (size_t)call->count * width);
    for (int r = 0; r < s->team.size && hold->landing; r++) {
        struct ah_part part = ah_collective_part(call, s->team.size, r, s->shm.base.rank);
        if (!part.count || (s->team.at[r] == s->team.mine && !ah_collective_reduces(call)))
            continue;
        memcpy((char *)call->out + (size_t)part.place * width, (char *)hold->landing + (size_t)part.place * width,
               (size_t)part.count * width);
        if (ah_collective_reduces(call))
            return;
    }
}

/* Of a small call: have all inputs arrived with their posts? */
static int check_inputs(struct spread_group *s, const struct ah_collective *call, uint32_t sequence)
{
    for (int r = 0; r < s->team.size; r++) {
        const struct ah_call_record *record = ah_group_call_record(&s->shm.base, r, sequence);
        if (record->wired ||
            record->inline_bytes != (size_t)ah_collective_input(call, s->team.size, r) * width_of(call))
            return ah_fail(AH_EIO, "the input of rank %d has not arrived with its call", s->team.member[r]);
    }
    return 0;
}

static void reduce_alone(struct spread_group *s, const struct ah_collective *call, uint32_t sequence)
{
    const void *from[AH_MAX_RANKS];
    for (int r = 0; r < s->team.size; r++)
        from[r] = shm_segment(&s->shm, r) + ah_group_call_record(&s->shm.base, r, sequence)->offset;
    ah_combine(call->dtype, call->reduce, (void *const *)&call->out, 1, from, s->team.size, call->count,
               shm_divisor(&s->shm, sequence));
}

/* A small all_reduce is staged, in halves in turn: no rank waits until its peers have read it. */
static int stage_small(struct spread_group *s, const struct ah_collective *call, struct ah_call_arguments *out)
{
    struct ah_group *group = &s->shm.base;
    AH_TRY(claim_record(s));
    out->inline_bytes = (uint32_t)((size_t)call->count * width_of(call));
    out->offset = atomic_load(&group->peer[group->rank]->address) + (size_t)(s->shm.round & 1) * AH_STAGE_BYTES;
    if (out->inline_bytes)
        memcpy(shm_stage(&s->shm, group->rank, s->shm.round), call->in, out->inline_bytes);
    s->shm.round++;
    return 0;
}

/* Blocking calls. */

static int spread_fill_arguments(struct ah_group *group, const struct ah_collective *call,
                                 struct ah_call_arguments *out)
{
    struct spread_group *s = spread_of(group);
    ah_hold_release(&s->holder, &s->blocking); /* of a failed call: its group is poisoned, or was restarted */
    if (call->kind == AH_ALL_REDUCE && !ah_team_wires(&s->team, call))
        return stage_small(s, call, out);
    return spread_prepare(s, call, &s->blocking, out);
}

static int spread_run(struct ah_group *group, const struct ah_collective *call)
{
    struct spread_group *s = spread_of(group);
    uint32_t sequence = group->issued;
    if (!ah_group_call_record(group, group->rank, sequence)->wired) {
        AH_TRY(check_inputs(s, call, sequence));
        if (call->kind == AH_ALL_REDUCE) {
            reduce_alone(s, call, sequence);
            return 0;
        }
        shm_take_parts(&s->shm, call, sequence, NULL);
        ah_group_publish_done(group, sequence);
        AH_TRY(ah_watch_wait(group, AH_DONE, sequence));
    } else {
        spread_contribute(s, call, sequence, true);
        ah_group_publish_done(group, sequence);
        AH_TRY(await_progress(s, sequence));
        spread_collect(s, call, &s->blocking);
    }
    ah_hold_release(&s->holder, &s->blocking);
    return 0;
}

/* Works. */

static int spread_start(struct ah_work *work)
{
    return spread_prepare(spread_of(work->group), &work->call, &((struct spread_work *)work)->hold, &work->arguments);
}

static int spread_carry(struct ah_work *work)
{
    struct spread_group *s = spread_of(work->group);
    const struct ah_collective *call = &work->call;
    if (ah_collective_is_barrier(call->kind))
        return 0;
    if (work->arguments.wired) {
        spread_contribute(s, call, work->sequence, !work->abandoned);
        return 0;
    }
    AH_TRY(check_inputs(s, call, work->sequence));
    if (work->abandoned)
        return 0;
    if (call->kind == AH_ALL_REDUCE)
        reduce_alone(s, call, work->sequence);
    else
        shm_take_parts(&s->shm, call, work->sequence, NULL);
    return 0;
}

static int spread_finish(struct ah_work *work)
{
    struct spread_group *s = spread_of(work->group);
    if (!work->arguments.wired)
        return 0;
    AH_TRY(await_progress(s, work->sequence));
    spread_collect(s, &work->call, &((struct spread_work *)work)->hold);
    return 0;
}

static void spread_drop(struct ah_work *work, bool complete)
{
    if (complete)
        ah_hold_release(&spread_of(work->group)->holder, &((struct spread_work *)work)->hold);
}

/* Opening. */

static int open_leader(struct spread_group *s)
{
    struct ah_group *group = &s->shm.base;
    int64_t heartbeat_timeout_ns = 0;
    if (group->root != group || group->member[group->rank] != group->control->header->first)
        return 0;
    AH_TRY(ah_seconds_from_environment("ACCELHOST_HEARTBEAT", 5, &heartbeat_timeout_ns));
    AH_TRY(ah_replica_open(&s->replica, group->control, group->timeout_ns, heartbeat_timeout_ns));
    group->control->replica = s->replica;
    return ah_progress_open(&s->progress, group->control, s->replica, group->timeout_ns);
}

static int spread_open(struct ah_group *group)
{
    struct spread_group *s = spread_of(group);
    void **memory = &spread_of(group->root)->member_tables[group->block];
    if (!group->control->hosts)
        return ah_fail(AH_EINVAL, "the job's control block has no table of hosts");
    ah_team_make(&s->team, group->control->hosts, group->member, group->size);
    s->steps = group->base;
    AH_TRY(shm_open_ranks(group));
    s->holder = (struct ah_holder){s->shm.segment, &s->team, group->rank};
    if (!*memory)
        AH_TRY(ah_segment_alloc(s->shm.segment, sizeof *s->member_table, true, memory));
    s->member_table = *memory;
    atomic_store(&s->member_table->lost, 0);
    s->member_table->size = group->size;
    s->member_table->identity = (uint32_t)(group->identity ^ group->identity >> 32);
    for (int r = 0; r < group->size; r++)
        s->member_table->member[r] = group->member[r];
    atomic_store(&group->peer[group->rank]->member_table,
                 ah_segment_offset(s->shm.segment, s->member_table, sizeof *s->member_table));
    return open_leader(s);
}

static void spread_close(struct ah_group *group)
{
    struct spread_group *s = spread_of(group);
    if (s->replica) {
        ah_replica_linger(s->replica);
        /* First the final states of this host's ranks: a connection for data that breaks without them would
         * count as the end of this host. */
        ah_replica_part(s->replica);
        ah_progress_close(s->progress);
        ah_replica_close(s->replica);
        s->replica = NULL;
        s->progress = NULL;
        group->control->replica = NULL;
    }
    shm_close(group);
}

/* A part whose members are all on this host needs no progress thread. */
static const struct ah_backend *part_backend(const struct ah_group *parent, const struct ah_seat *seat)
{
    for (int r = 0; r < seat->size; r++)
        if (!ah_control_is_local(parent->control, seat->member[r]))
            return &ah_spread_backend;
    return &ah_shm_backend;
}

const struct ah_backend ah_spread_backend = {
    .name = "spread",
    .group_bytes = sizeof(struct spread_group),
    .work_bytes = sizeof(struct spread_work),
    .message_bytes = sizeof(struct shm_message),
    .open = spread_open,
    .close = spread_close,
    .part = part_backend,
    .fill_arguments = spread_fill_arguments,
    .run = spread_run,
    .start = spread_start,
    .carry = spread_carry,
    .finish = spread_finish,
    .drop = spread_drop,
    .settled = spread_settled,
    .attend = spread_attend,
    .leave = spread_leave,
    .lend = shm_lend,
    .borrow = shm_borrow,
    .give_back = shm_give_back,
    .give = shm_give,
    .fetch = shm_fetch,
    .forget = shm_forget,
    .alloc = shm_alloc,
    .free = shm_free,
    .trim = shm_trim,
    .discard = shm_discard,
};
