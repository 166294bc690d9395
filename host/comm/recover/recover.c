/* Boundaries are published by ROUND of group block 0. Invariant: boundary b of a rank, and its log since then, is
 * overwritten only when all ranks have published b + 1, so that the replacement of a rank that dies after b finds all
 * of it on every rank; and a replacement continues at its own rank's last boundary, so no rank frees data that it
 * needs. */
#include "comm/recover/recover.h"

#include <stdio.h>
#include <string.h>

#include "comm/control/replay_log.h"
#include "comm/group/backend.h"
#include "comm/group/watch.h"

static const int64_t look_ns = 50000000; /* between two polls of the peers */

static struct {
    struct ah_control_block *control;
    struct ah_group *root; /* NULL: there are no groups, or none yet */
    int rank;
    size_t slice_bytes;    /* of the next boundary */
    bool taken;            /* the state of a boundary, which is marked next */
} own_recovery;

void ah_recovery_join(struct ah_control_block *control, int rank)
{
    own_recovery.control = control->header->recovers ? control : NULL;
    own_recovery.root = NULL;
    own_recovery.rank = rank;
    own_recovery.slice_bytes = 0;
    own_recovery.taken = false;
}

void ah_recovery_lead(struct ah_group *root)
{
    if (own_recovery.control)
        own_recovery.root = root;
}

static struct ah_rank_entry *own_slot(void)
{
    return ah_rank_entry(own_recovery.control, own_recovery.rank);
}

static uint32_t published_by(int rank)
{
    return ah_replay_boundaries(own_recovery.control, rank);
}

bool ah_recovery_is_on(void)
{
    return own_recovery.control != NULL;
}

bool ah_recovery_is_due(void)
{
    return own_recovery.control && atomic_load(&own_slot()->due);
}

int ah_recovery_rank(int *size)
{
    *size = own_recovery.control ? own_recovery.control->size : 1;
    return own_recovery.rank;
}

int64_t ah_recovery_boundary(void)
{
    return own_recovery.control ? (int64_t)published_by(own_recovery.rank) - 1 : -1;
}

static struct ah_group *next_group(struct ah_group *group)
{
    return group == own_recovery.root ? own_recovery.root->parts : group->parts;
}

/* Has the rank issued a call that follows the boundary that this rank has published last? */
static bool has_continued(int rank, uint32_t published)
{
    const struct ah_boundary *at = &own_slot()->replay_log.boundary[(published - 1) & 1];
    for (struct ah_group *group = own_recovery.root; group && published; group = next_group(group))
        for (int r = 0; r < group->size; r++)
            if (group->member[r] == rank &&
                !ah_reached(at->issued[group->block], ah_group_counter(group->peer[r], AH_ISSUED)))
                return true;
    return false;
}

static int await_rank(int rank, uint32_t published, bool ended_too)
{
    struct ah_watch watch = {0};
    struct ah_rank_entry *slot = ah_rank_entry(own_recovery.control, rank);
    char what[80];
    for (;;) {
        bool continued = has_continued(rank, published); /* asked first: a boundary is published before later calls */
        uint32_t seen = published_by(rank);
        if (ah_reached(seen, published) || (!ended_too && atomic_load(&slot->state) == AH_RANK_ENDED))
            return 0;
        if (continued)
            return ah_fail(AH_EMISMATCH,
                           "rank %d has reached step %u, and rank %d made a collective without reaching "
                           "it: live recovery needs the same steps on all ranks",
                           own_recovery.rank, published - 1, rank);
        snprintf(what, sizeof what, "live recovery at step %u", published - 1);
        AH_TRY(ah_watch_peer(&watch, own_recovery.root, rank, what));
        ah_group_sleep(&slot->block[0], AH_ROUND, seen, look_ns);
    }
}

/* Wait until all ranks have published that many boundaries; of ranks that have ended only if they are needed. */
static int recover_await(uint32_t published, bool ended_too)
{
    for (int r = 0; r < own_recovery.control->size && own_recovery.root; r++)
        if (r != own_recovery.rank)
            AH_TRY(await_rank(r, published, ended_too));
    return 0;
}

/* Complete the works that this rank has begun, and check that it has made the calls of the process before it. */
static int recover_settle(void)
{
    for (struct ah_group *group = own_recovery.root; group; group = next_group(group)) {
        uint32_t kept = ah_group_counter(group->peer[group->rank], AH_ISSUED);
        AH_TRY(ah_group_poison(group, ah_group_advance(group, group->issued, true)));
        if (group->issued != kept)
            return ah_fail(AH_EMISMATCH,
                           "rank %d has reached step %u by %u collectives, and the process that it "
                           "replaces had made %u",
                           own_recovery.rank, published_by(own_recovery.rank), group->issued - group->base,
                           kept - group->base);
    }
    return 0;
}

/* Check that the ranks of a group reach a boundary by the same calls. */
static int recover_compare(uint32_t boundary)
{
    for (struct ah_group *group = own_recovery.root; group; group = next_group(group))
        for (int r = 0; r < group->size; r++) {
            const struct ah_rank_entry *slot = ah_rank_entry(own_recovery.control, group->member[r]);
            if (r == group->rank || !ah_reached(published_by(group->member[r]), boundary + 1))
                continue;
            uint32_t theirs = slot->replay_log.boundary[boundary & 1].issued[group->block];
            if (theirs == group->issued)
                continue;
            return ah_fail(AH_EMISMATCH,
                           "rank %d has reached step %u by %u collectives, rank %d by %u: live recovery "
                           "needs the same number on all ranks",
                           own_recovery.rank, boundary, group->issued - group->base, group->member[r],
                           theirs - group->base);
        }
    return 0;
}

static void recover_publish(uint32_t boundary, const void *note, size_t bytes)
{
    struct ah_rank_entry *slot = own_slot();
    struct ah_boundary *place = &slot->replay_log.boundary[boundary & 1];
    unsigned char *written = ah_replay_part(own_recovery.control, own_recovery.rank, AH_REPLAY_NOTE, boundary);
    if (bytes && note != written)
        memcpy(written, note, bytes);
    *place = (struct ah_boundary){.note_bytes = bytes, .slice_bytes = own_recovery.slice_bytes};
    for (int c = 0; c < AH_MAX_GROUPS; c++)
        place->issued[c] = ah_group_counter(&slot->block[c], AH_ISSUED);
    if (boundary == 0)
        memcpy(slot->replay_log.set_up, place->issued, sizeof place->issued);
    ah_replay_turn(own_recovery.control, own_recovery.rank, boundary);
    own_recovery.slice_bytes = 0;
    ah_group_counter_advance(&slot->block[0], AH_ROUND, boundary + 1);
}

static int check_room(enum ah_replay_part part, const char *name, size_t bytes)
{
    if (bytes <= ah_replay_most(part))
        return 0;
    return ah_fail(AH_ENOMEM, "live recovery: rank %d's %s has %zu bytes, of at most %llu", own_recovery.rank, name,
                   bytes, (unsigned long long)ah_replay_most(part));
}

static int check_taken(void)
{
    uint32_t boundary = published_by(own_recovery.rank);
    if (boundary == 0 || !atomic_load(&own_slot()->due))
        return 0;
    return ah_fail(AH_ESTATE, "this process replaces rank %d, which died after step %u, and has not loaded its state: "
                   "call accelerator:load_state() before the loop", own_recovery.rank, boundary - 1);
}

/* Return where a part of the next boundary is stored. A loaded boundary is already published, and calls after it may be
 * in the log. */
static int place_of(enum ah_replay_part part, void **out)
{
    uint32_t boundary = published_by(own_recovery.rank);
    AH_TRY(check_taken());
    if (!own_recovery.taken)
        AH_TRY(recover_settle());
    AH_TRY(recover_await(boundary, false));
    *out = ah_replay_part(own_recovery.control, own_recovery.rank, part, boundary);
    return 0;
}

int ah_recovery_slice(size_t bytes, void **out)
{
    *out = NULL;
    if (!own_recovery.control)
        return 0;
    AH_TRY(check_room(AH_REPLAY_SLICE, "slice", bytes));
    AH_TRY(place_of(AH_REPLAY_SLICE, out));
    own_recovery.slice_bytes = bytes;
    return 0;
}

int ah_recovery_note(void **out, size_t *room)
{
    *out = NULL;
    *room = 0;
    if (!own_recovery.control)
        return 0;
    *room = (size_t)ah_replay_most(AH_REPLAY_NOTE);
    return place_of(AH_REPLAY_NOTE, out);
}

int ah_recovery_mark(const void *note, size_t bytes)
{
    if (!own_recovery.control)
        return 0;
    if (own_recovery.taken) {
        own_recovery.taken = false;
        return 0;
    }
    uint32_t boundary = published_by(own_recovery.rank);
    AH_TRY(check_taken());
    AH_TRY(check_room(AH_REPLAY_NOTE, "note", bytes));
    AH_TRY(recover_settle());
    AH_TRY(recover_await(boundary, false));
    atomic_store(&own_slot()->due, 0);
    ah_control_return(own_recovery.control, own_recovery.rank);
    recover_publish(boundary, note, bytes);
    return recover_compare(boundary);
}

int ah_recovery_find(int64_t *boundary)
{
    *boundary = -1;
    if (!ah_recovery_is_due())
        return 0;
    uint32_t published = published_by(own_recovery.rank);
    if (published == 0) {
        atomic_store(&own_slot()->due, 0);
        return 0;
    }
    AH_TRY(recover_await(published, true));
    *boundary = (int64_t)published - 1;
    return 0;
}

static int part_of(int rank, enum ah_replay_part part, const void **out, size_t *bytes)
{
    int64_t boundary = ah_recovery_boundary();
    if (boundary < 0 || rank < 0 || rank >= own_recovery.control->size ||
        !ah_reached(published_by(rank), (uint32_t)boundary + 1))
        return ah_fail(AH_ESTATE, "live recovery: rank %d has published nothing at step %lld", rank,
                       (long long)boundary);
    const struct ah_boundary *at = &ah_rank_entry(own_recovery.control, rank)->replay_log.boundary[boundary & 1];
    uint64_t has = part == AH_REPLAY_NOTE ? at->note_bytes : at->slice_bytes;
    *bytes = has < ah_replay_most(part) ? (size_t)has : (size_t)ah_replay_most(part);
    *out = ah_replay_part(own_recovery.control, rank, part, (uint32_t)boundary);
    return 0;
}

int ah_recovery_note_of(int rank, const void **note, size_t *bytes)
{
    return part_of(rank, AH_REPLAY_NOTE, note, bytes);
}

int ah_recovery_slice_of(int rank, const void **slice, size_t *bytes)
{
    return part_of(rank, AH_REPLAY_SLICE, slice, bytes);
}

int ah_recovery_take(void)
{
    int64_t boundary = ah_recovery_boundary();
    if (!ah_recovery_is_due() || boundary < 0)
        return ah_fail(AH_ESTATE, "no state of another process is available");
    const struct ah_boundary *at = &own_slot()->replay_log.boundary[boundary & 1];
    for (struct ah_group *group = own_recovery.root; group; group = next_group(group)) {
        uint32_t issued = at->issued[group->block];
        AH_TRY(ah_group_poison(group, ah_group_advance(group, group->issued, true)));
        if (!ah_reached(issued, group->issued))
            return ah_fail(AH_EMISMATCH,
                           "rank %d has made %u collectives before it loads its state of step %lld, "
                           "which it had reached by %u",
                           own_recovery.rank, group->issued - group->base, (long long)boundary, issued - group->base);
        group->issued = group->done = group->ring_safe = issued;
    }
    own_recovery.taken = true;
    atomic_store(&own_slot()->due, 0);
    ah_control_return(own_recovery.control, own_recovery.rank);
    return 0;
}
