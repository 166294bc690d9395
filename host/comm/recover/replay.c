/* The backend of jobs whose killed ranks are replaced (recover.h): every rank's inputs are kept in its segment, and
 * each rank makes its results of them by itself.
 *
 * So a call has completed for a rank as soon as all have issued it, whatever they do then, and the replacement of one
 * that died replays its calls from the log, without its peers. Subgroups are of this backend too; their
 * counters on a group block only grow, so that a group block and a number name a call for good. */
#include <string.h>

#include "comm/control/combine.h"
#include "comm/control/replay_log.h"
#include "comm/group/watch.h"
#include "comm/recover/recover.h"

static int replay_open(struct ah_group *group)
{
    AH_TRY(ah_replay_check(group->control));
    group->choice = AH_DEVICE_COMM_NONE; /* data that a device's library moves are not logged */
    if (group->root == group)
        ah_recovery_lead(group);
    return 0;
}

/* A replacement can only find the groups that were made before the first step. */
static int replay_may_split(const struct ah_group *parent)
{
    if (ah_recovery_boundary() < 0 || ah_recovery_is_due())
        return 0;
    return ah_fail(AH_ENOTIMPL, "split: with live recovery groups are made before the first step, and this is after "
                   "step %lld", (long long)ah_recovery_boundary());
}

/* Check that a replacement makes the calls of the process before it. */
static int compare_with_log(const struct ah_group *group, const struct ah_call_record *record)
{
    char text[160];
    int rank = group->member[group->rank];
    const struct ah_rank_entry *slot = ah_rank_entry(group->control, rank);
    uint32_t set_up = slot->replay_log.set_up[group->block];
    ah_call_record_describe(record, text, sizeof text);
    if (ah_replay_boundaries(group->control, rank) && atomic_load(&slot->due) && !ah_reached(set_up, record->sequence))
        return ah_fail(AH_ESTATE,
                       "%s at %s: this process replaces rank %d, which died after its first step, and goes "
                       "on without its state: call accelerator:load_state() before the loop",
                       text, record->where, rank);
    const struct ah_replay_entry *kept = ah_replay_find(group->control, rank, group->block, record->sequence);
    if (!kept)
        return ah_fail(AH_ESTATE, "%s at %s: the input of rank %d to collective #%u is no longer in the replay log",
                       text, record->where, rank, record->sequence - group->base);
    if (kept->hash == record->hash)
        return 0;
    return ah_fail(AH_EMISMATCH, "collective #%u differs: %s at %s; the process that this one replaces made %s at %s "
                   "there, and a script that is run again is to make the same calls", record->sequence - group->base,
                   text, record->where, ah_collective_name((enum ah_collective_kind)kept->kind, kept->async),
                   kept->where);
}

/* Log the input of the next call, or find it in the log. */
static int replay_arguments(struct ah_group *group, const struct ah_collective *call, struct ah_call_arguments *out)
{
    struct ah_call_record record;
    int rank = group->member[group->rank];
    size_t bytes = (size_t)ah_collective_input(call, group->size, group->rank) * ah_dtype_size(call->dtype);
    ah_call_record_fill(&record, call, group->issued + 1, group->size);
    out->before = ah_reached(ah_group_counter(group->peer[group->rank], AH_ISSUED), record.sequence);
    if (out->before)
        return compare_with_log(group, &record);
    ah_control_return(group->control, rank);
    return ah_replay_add(group->control, rank, group->block, &record, call->in, bytes);
}

/* This rank's result of a call that all have issued. */
static int make_result(struct ah_group *group, const struct ah_collective *call, uint32_t sequence, uint32_t *note)
{
    const void *from[AH_MAX_RANKS];
    size_t width = ah_dtype_size(call->dtype);
    double divisor = 0;
    int64_t reduced = 0;
    for (int r = 0; r < group->size; r++) {
        struct ah_part part = ah_collective_part(call, group->size, r, group->rank);
        const struct ah_replay_entry *kept = ah_replay_find(group->control, group->member[r], group->block, sequence);
        if (!kept || (part.count && (uint64_t)(part.first + part.count) * width > kept->bytes))
            return ah_fail(AH_ESTATE, "%s #%u at %s: the input of rank %d is no longer in the replay log",
                           ah_collective_name(call->kind, call->async), sequence - group->base, call->where,
                           group->member[r]);
        *note |= kept->note;
        divisor += kept->weight;
        reduced = part.count;
        from[r] = (const char *)ah_replay_input(group->control, group->member[r], kept) + (size_t)part.first * width;
        if (part.count && !ah_collective_reduces(call))
            memcpy((char *)call->out + (size_t)part.place * width, from[r], (size_t)part.count * width);
    }
    if (reduced && ah_collective_reduces(call))
        ah_combine(call->dtype, call->reduce, (void *const *)&call->out, 1, from, group->size, reduced, divisor);
    return 0;
}

static int replay_run(struct ah_group *group, const struct ah_collective *call)
{
    return make_result(group, call, group->issued, &(uint32_t){0});
}

static int replay_start(struct ah_work *work)
{
    return replay_arguments(work->group, &work->call, &work->arguments);
}

static int replay_carry(struct ah_work *work)
{
    return work->abandoned ? 0 : make_result(work->group, &work->call, work->sequence, &work->note);
}

/* Memory of the group is its rank's own. */
static int replay_alloc(struct ah_group *group, size_t bytes, void **out)
{
    return ah_self_backend.alloc(group, bytes, out);
}

static void replay_free(struct ah_group *group, void *memory, size_t bytes)
{
    ah_self_backend.free(group, memory, bytes);
}

const struct ah_backend ah_replay_backend = {
    .name = "keep",
    .group_bytes = sizeof(struct ah_group),
    .work_bytes = sizeof(struct ah_work),
    .open = replay_open,
    .may_split = replay_may_split,
    .fill_arguments = replay_arguments,
    .run = replay_run,
    .start = replay_start,
    .carry = replay_carry,
    .issued_is_all = true,
    .alloc = replay_alloc,
    .free = replay_free,
};
