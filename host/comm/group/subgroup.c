/* Subgroups of a group. All ranks of the parent exchange color, key, the group blocks they use and their highest
 * counters; from the same table every member makes the same choice: the lowest group block that none of them uses,
 * counting on from the highest counter, so that no late peer sees a counter decrease.
 *
 * A group block stays in use until all members of its group have done the calls that this rank issued there (or are
 * lost): before that one of them may still compare a call record of this rank. */
#include "comm/group/subgroup.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group/watch.h"

struct entry {
    int64_t color, key, used, highest;
};

/* Does no peer read the group block of a closed group any more? */
static bool subgroup_quiet(struct ah_group *group)
{
    for (int r = 0; r < group->size; r++) {
        struct ah_rank_entry *slot = ah_rank_entry(group->control, group->member[r]);
        int state = atomic_load(&slot->state);
        if (r != group->rank && (state == AH_RANK_RUNNING || state == AH_RANK_RETURNING) &&
            !ah_reached(ah_group_counter(group->peer[r], AH_DONE), group->issued))
            return false;
    }
    return !group->backend->settled || group->backend->settled(group, group->issued);
}

bool ah_subgroup_retire(struct ah_group *group)
{
    struct ah_group *root = group->root;
    if (root == group || !group->control || !(root->blocks >> group->block & 1))
        return false;
    group->retired = root->retired;
    root->retired = group;
    return true;
}

static void free_quiet_channels(struct ah_group *root)
{
    for (struct ah_group **at = &root->retired; *at;) {
        struct ah_group *closed = *at;
        if (!subgroup_quiet(closed)) {
            at = &closed->retired;
            continue;
        }
        *at = closed->retired;
        root->blocks &= ~(1u << closed->block);
        ah_group_dispose(closed);
    }
}

static uint32_t highest_counter(struct ah_group *group)
{
    struct ah_rank_entry *slot = ah_rank_entry(group->control, group->member[group->rank]);
    uint32_t highest = 0;
    for (int c = 1; c < AH_MAX_GROUPS; c++)
        for (int k = 0; k < AH_COUNTERS; k++)
            if (ah_reached(atomic_load(&slot->block[c].counter[k]), highest))
                highest = atomic_load(&slot->block[c].counter[k]);
    return highest;
}

/* The members of the own color, ordered; ranks are the parent's, their number is returned. */
static int choose_members(const struct entry *table, int size, int rank, int *members)
{
    int count = 0;
    for (int r = 0; r < size; r++) {
        if (table[r].color != table[rank].color)
            continue;
        int at = count++;
        for (; at > 0 && table[members[at - 1]].key > table[r].key; at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return count;
}

static int open_part(struct ah_group **out, struct ah_group *parent, const struct entry *table, int *members)
{
    struct ah_group *root = parent->root;
    struct ah_seat seat = {.control = parent->control, .member = members, .root = root,
                           .timeout_ns = parent->timeout_ns, .stall_warning_ns = parent->stall_warning_ns};
    uint32_t used = 1;
    seat.size = choose_members(table, parent->size, parent->rank, members);
    for (int i = 0; i < seat.size; i++) {
        used |= (uint32_t)table[members[i]].used;
        if (ah_reached((uint32_t)table[members[i]].highest, seat.base))
            seat.base = (uint32_t)table[members[i]].highest;
        if (members[i] == parent->rank)
            seat.rank = i;
        members[i] = parent->member[members[i]];
    }
    while (seat.block < AH_MAX_GROUPS && used >> seat.block & 1)
        seat.block++;
    if (seat.block == AH_MAX_GROUPS)
        return ah_fail(AH_EINVAL, "split: a rank is in %d groups at once, the most that it can be in",
                       AH_MAX_GROUPS);
    if (parent->control) {
        struct ah_group_block *mine = &ah_rank_entry(parent->control, members[seat.rank])->block[seat.block];
        atomic_store(&mine->base, seat.base);
        for (int c = 0; c < AH_COUNTERS; c++)
            if (!ah_reached(atomic_load(&mine->counter[c]), seat.base)) /* the process before may have continued */
                atomic_store(&mine->counter[c], seat.base);
        int seen = atomic_load(&parent->control->header->blocks);
        while (seen <= seat.block &&
               !atomic_compare_exchange_weak(&parent->control->header->blocks, &seen, seat.block + 1))
            continue;
    }
    const struct ah_backend *backend = parent->backend->part ? parent->backend->part(parent, &seat) : parent->backend;
    AH_TRY(ah_group_open(out, backend, &seat));
    (*out)->choice = parent->choice;
    root->blocks |= 1u << seat.block;
    return 0;
}

static int check_split(const struct ah_group *parent)
{
    return parent->backend->may_split ? parent->backend->may_split(parent) : 0;
}

int ah_group_split(struct ah_group **out, struct ah_group *parent, int color, int key, const char *where)
{
    struct ah_group *root = parent->root;
    size_t n = (size_t)parent->size;
    struct entry mine = {color, key, 0, 0};
    AH_FREED struct entry *table = malloc(n * sizeof *table);
    AH_FREED int *members = malloc(n * sizeof *members);
    *out = NULL;
    AH_TRY(check_split(parent));
    if (!table || !members)
        return ah_fail(AH_ENOMEM, "split: out of memory");
    if (parent->control) {
        free_quiet_channels(root);
        mine.used = root->blocks;
        mine.highest = highest_counter(parent);
    }
    struct ah_collective call = ah_collective_all_gather(table, &mine, sizeof mine / sizeof(int64_t), AH_I64);
    call.where = where;
    AH_TRY(ah_group_run(parent, call));
    return color < 0 ? 0 : open_part(out, parent, table, members);
}
