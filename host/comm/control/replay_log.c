/* The parts of a segment are at fixed offsets, far apart: their pages are allocated on use. Inputs are stored in
 * sequence in three areas: of set-up, and of the intervals after even and odd boundaries. Each has an index for each
 * group block, in which a call's place follows from the counters of its boundary, so that no search is needed. */
#include "comm/control/replay_log.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status/status.h"

enum { AREAS = 3, INDEXED = 1 << 18 }; /* calls of an interval on a group block */

static const uint64_t gib = (uint64_t)1 << 30;
static const uint64_t trimmed = (uint64_t)64 << 20; /* bytes of an area that are not worth giving back */

static const struct {
    uint64_t at, bytes;
} area_of[AREAS] = {
    {(uint64_t)16 << 30, (uint64_t)16 << 30},
    {(uint64_t)32 << 30, (uint64_t)16 << 30},
    {(uint64_t)48 << 30, (uint64_t)16 << 30},
}, part_of[] = {
    [AH_REPLAY_NOTE] = {(uint64_t)1 << 30, (uint64_t)1 << 30},
    [AH_REPLAY_SLICE] = {(uint64_t)4 << 30, (uint64_t)6 << 30},
};

static int replay_reserve(struct ah_control_block *control, int rank)
{
    if (ftruncate(control->segment_fd[rank], (off_t)(area_of[AREAS - 1].at + area_of[AREAS - 1].bytes)))
        return ah_fail(AH_EIO, "shared memory of rank %d for live recovery: %s", rank, strerror(errno));
    return 0;
}

int ah_replay_enable(struct ah_control_block *control)
{
    for (int r = 0; r < control->size; r++)
        AH_TRY(replay_reserve(control, r));
    control->header->recovers = true;
    return 0;
}

int ah_replay_check(const struct ah_control_block *control)
{
    uint64_t needed = area_of[AREAS - 1].at + area_of[AREAS - 1].bytes;
    if (control->segment_span >= needed)
        return 0;
    return ah_fail(AH_ENOMEM, "live recovery needs %llu GiB of address space for each rank, and there were %llu",
                   (unsigned long long)(needed / gib), (unsigned long long)(control->segment_span / gib));
}

static struct ah_replay_log *replay_log_of(const struct ah_control_block *control, int rank)
{
    return &control->header->slot[rank].replay_log;
}

static struct ah_replay_entry *index_of(const struct ah_control_block *control, int rank, int area, int block)
{
    _Static_assert(sizeof(struct ah_replay_entry) * INDEXED * AREAS * AH_MAX_GROUPS <= (size_t)1 << 30,
                   "the indexes precede the notes");
    return (struct ah_replay_entry *)control->segment[rank] + ((size_t)area * AH_MAX_GROUPS + (size_t)block) * INDEXED;
}

/* The area of the interval behind a boundary. */
static int area_behind(uint32_t boundary)
{
    return 1 + (int)(boundary & 1);
}

/* The boundary behind which a rank made a call, one of after boundary 0, and its counter there. */
static bool find_interval(const struct ah_replay_log *replay_log, uint32_t published, int block, uint32_t sequence,
                          uint32_t *boundary, uint32_t *first)
{
    for (uint32_t back = 1; back <= 2 && back <= published; back++) {
        *boundary = published - back;
        *first = replay_log->boundary[*boundary & 1].issued[block];
        if (!ah_reached(*first, sequence))
            return true;
    }
    return false;
}

/* The range of set-up calls is read once: while a replacement makes them, a peer may be writing its next boundary over
 * the last but one. */
const struct ah_replay_entry *ah_replay_find(struct ah_control_block *control, int rank, int block, uint32_t sequence)
{
    const struct ah_replay_log *replay_log = replay_log_of(control, rank);
    uint32_t published = ah_replay_boundaries(control, rank), boundary, first = 0;
    int area = 0;
    if (published && !ah_reached(replay_log->set_up[block], sequence)) {
        if (!find_interval(replay_log, published, block, sequence, &boundary, &first))
            return NULL;
        area = area_behind(boundary);
    }
    uint32_t place = sequence - first - 1;
    const struct ah_replay_entry *kept = index_of(control, rank, area, block) + place;
    return place < INDEXED && kept->sequence == sequence ? kept : NULL;
}

const void *ah_replay_input(const struct ah_control_block *control, int rank, const struct ah_replay_entry *kept)
{
    return control->segment[rank] + kept->offset;
}

int ah_replay_add(struct ah_control_block *control, int rank, int block, const struct ah_call_record *record,
                  const void *in, size_t bytes)
{
    struct ah_replay_log *replay_log = replay_log_of(control, rank);
    uint32_t published = ah_replay_boundaries(control, rank);
    int area = published ? area_behind(published - 1) : 0;
    uint32_t first = published ? replay_log->boundary[(published - 1) & 1].issued[block] : 0;
    uint32_t place = record->sequence - first - 1;
    /* Relaxed: its only writer, and of its readers a replacement begins when this process has ended. */
    uint64_t used = atomic_load_explicit(&replay_log->used[area], memory_order_relaxed);
    if (place >= INDEXED)
        return ah_fail(AH_ENOTIMPL, "live recovery keeps at most %d calls from one step to the next", INDEXED);
    if (bytes > area_of[area].bytes - used)
        return ah_fail(AH_ENOMEM, "live recovery keeps at most %llu GiB of a rank's inputs to calls from one step "
                       "to the next", (unsigned long long)(area_of[area].bytes / gib));
    struct ah_replay_entry *kept = index_of(control, rank, area, block) + place;
    *kept = (struct ah_replay_entry){.sequence = record->sequence, .note = record->note, .hash = record->hash,
                                     .weight = record->weight, .offset = area_of[area].at + used, .bytes = bytes,
                                     .kind = record->kind, .async = record->async};
    memcpy(kept->where, record->where, sizeof kept->where);
    if (bytes)
        memcpy(control->segment[rank] + kept->offset, in, bytes);
    atomic_store_explicit(&replay_log->used[area], used + (bytes + 63) / 64 * 64, memory_order_relaxed);
    return 0;
}

void ah_replay_turn(struct ah_control_block *control, int rank, uint32_t boundary)
{
    struct ah_replay_log *replay_log = replay_log_of(control, rank);
    int area = area_behind(boundary), other = boundary ? area_behind(boundary - 1) : 0;
    uint64_t had = atomic_load(&replay_log->used[area]), has = atomic_load(&replay_log->used[other]);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = (has + page - 1) / page * page;
    atomic_store(&replay_log->used[area], 0);
    /* After an interval of much more than the last one, an evaluation for example, its memory is returned. */
    if (had > from + trimmed)
        madvise(control->segment[rank] + area_of[area].at + from, had - from, MADV_REMOVE);
}

unsigned char *ah_replay_part(const struct ah_control_block *control, int rank, enum ah_replay_part part,
                              uint32_t boundary)
{
    return control->segment[rank] + part_of[part].at + (boundary & 1) * part_of[part].bytes;
}

uint64_t ah_replay_most(enum ah_replay_part part)
{
    return part_of[part].bytes;
}
