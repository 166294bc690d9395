/* Memory is released in the order of the compute stream: a work that uses it is ordered before it (ah_work_order). */
#include "sync/split.h"

#include <stdlib.h>
#include <string.h>

#include "sync/shard.h"
#include "sync/state.h"

struct ah_split {
    struct ah_reducer *r;
    bool gradients;
    struct ah_arena *slices;
    size_t *slice;           /* offset of each bucket's slice there */
    struct ah_arena **whole; /* by bucket; memory NULL: absent */
    struct ah_work **work;   /* by bucket: the gather that is under way */
    struct ah_arena *staged; /* where slices are gathered through the host; NULL before */
    int *sequence, length, position; /* buckets in the order of their use; the next use's place */
};

static struct ah_storage *storage_of(const struct ah_split *split, int index)
{
    const struct ah_sync_parameter *p = &split->r->parameter[index];
    return (split->gradients ? p->grad : p->tensor)->storage;
}

/* Point the tensors of a bucket to its memory, or mark them absent. */
static void split_show(struct ah_split *split, int b, bool present)
{
    const struct ah_layout *layout = &split->r->layout;
    struct ah_arena *whole = split->whole[b];
    for (int i = 0; i < layout->count; i++) {
        if (layout->slot[i].bucket != b)
            continue;
        struct ah_storage *storage = storage_of(split, i);
        if (storage->owner != whole) /* the script has replaced it */
            continue;
        storage->absent = !present;
        storage->data = present ? whole->memory + (layout->slot[i].offset - layout->bucket[b].offset) : NULL;
    }
}

static int split_fetch_storage(struct ah_arena *arena, struct ah_storage *storage)
{
    return ah_split_fetch(arena->context, arena->bucket);
}

static int make_arenas(struct ah_split *split)
{
    struct ah_reducer *r = split->r;
    size_t bytes = 0;
    for (int b = 0; b < r->layout.bucket_count; b++) {
        split->slice[b] = bytes;
        bytes += ah_shard_of_bucket(r, b, 0).bytes;
    }
    AH_TRY(ah_arena_new(&split->slices, bytes, r->device, NULL));
    for (int b = 0; b < r->layout.bucket_count; b++) {
        AH_TRY(ah_arena_absent(&split->whole[b], r->layout.bucket[b].bytes, r->device));
        ah_arena_set_fetch(split->whole[b], split_fetch_storage, split);
        split->whole[b]->bucket = b;
        split->whole[b]->beside = ah_arena_retain(split->slices);
    }
    return 0;
}

int ah_split_new(struct ah_split **out, struct ah_reducer *r, bool of_gradients)
{
    size_t n = (size_t)r->layout.bucket_count + 1;
    struct ah_split *split = calloc(1, sizeof *split);
    AH_TRY_MEMORY(split, "prepare: out of memory");
    *split = (struct ah_split){.r = r, .gradients = of_gradients};
    split->slice = calloc(n, sizeof *split->slice);
    split->whole = calloc(n, sizeof(struct ah_arena *));
    split->work = calloc(n, sizeof(struct ah_work *));
    split->sequence = calloc(4 * n, sizeof *split->sequence);
    int status = split->slice && split->whole && split->work && split->sequence
                     ? make_arenas(split)
                     : ah_fail(AH_ENOMEM, "prepare: out of memory");
    if (status < 0)
        ah_split_free(split);
    else
        *out = split;
    return status;
}

void ah_split_free(struct ah_split *split)
{
    if (!split)
        return;
    for (int b = 0; split->whole && b < split->r->layout.bucket_count; b++) {
        if (split->work && split->work[b])
            ah_arena_abandon(split->whole[b], split->work[b]);
        if (split->whole[b])
            split->whole[b]->context = NULL;
        ah_arena_release(split->whole[b]);
    }
    ah_arena_release(split->slices);
    ah_arena_release(split->staged);
    free(split->slice);
    free(split->whole);
    free(split->work);
    free(split->sequence);
    free(split);
}

struct ah_arena *ah_split_whole(struct ah_split *split, int b)
{
    return split->whole[b];
}

char *ah_split_slice(struct ah_split *split, int b)
{
    return split->slices->memory + split->slice[b];
}

struct ah_arena *ah_split_slices(struct ah_split *split)
{
    return split->slices;
}

/* Whole. */

static bool is_present(const struct ah_split *split, int b)
{
    return split->whole[b]->memory && !split->work[b];
}

static size_t slice_bytes(const struct ah_split *split, int b)
{
    return ah_shard_of_bucket(split->r, b, 0).bytes;
}

/* The own slice's place in the whole bucket. */
static char *split_place(struct ah_split *split, int b)
{
    struct ah_span own = ah_shard_of_bucket(split->r, b, ah_group_rank(split->r->group));
    return split->whole[b]->memory + (own.offset - split->r->layout.bucket[b].offset);
}

static int split_copy(struct ah_split *split, char *to, const char *from, size_t bytes)
{
    return ah_device_copy(to, split->r->device, from, split->r->device, bytes);
}

int ah_split_allocate(struct ah_split *split, int b)
{
    if (is_present(split, b))
        return 0;
    if (!split->whole[b]->memory)
        AH_TRY(ah_arena_fill(split->whole[b]));
    split_show(split, b, true);
    return 0;
}

/* A gradient that there is is the own slice's mean, and zero elsewhere. */
static int fetch_gradients(struct ah_split *split, int b)
{
    struct ah_arena *whole = split->whole[b];
    AH_TRY(ah_arena_fill(whole));
    AH_TRY(whole->device->type->fill(whole->device, whole->memory, 0, whole->bytes));
    AH_TRY(split_copy(split, split_place(split, b), ah_split_slice(split, b), slice_bytes(split, b)));
    split_show(split, b, true);
    return 0;
}

static struct ah_collective gather_call(struct ah_split *split, int b, char *to, const char *from)
{
    struct ah_reducer *r = split->r;
    const struct ah_bucket *place = &r->layout.bucket[b];
    int64_t count = (int64_t)(slice_bytes(split, b) / ah_dtype_size(place->dtype));
    struct ah_collective call = ah_collective_all_gather(to, from, count, place->dtype);
    call.device = r->device_comm;
    call.ahead = true;
    call.purpose = AH_FOR_PARAMETERS;
    call.where = r->where;
    return call;
}

static int gather_by_host(struct ah_split *split, int b)
{
    struct ah_reducer *r = split->r;
    const struct ah_bucket *place = &r->layout.bucket[b];
    struct ah_span own = ah_shard_of_bucket(r, b, ah_group_rank(r->group));
    if (!split->staged)
        AH_TRY(ah_arena_new(&split->staged, r->layout.bytes, &ah_cpu, r->group));
    char *memory = split->staged->memory;
    AH_TRY(ah_device_copy(memory + own.offset, &ah_cpu, ah_split_slice(split, b), r->device, own.bytes));
    AH_TRY(ah_group_run(r->group, gather_call(split, b, memory + place->offset, memory + own.offset)));
    AH_TRY(ah_device_copy(split->whole[b]->memory, r->device, memory + place->offset, &ah_cpu, place->bytes));
    /* The others may still read this slice; the next gather of the bucket writes there. */
    struct ah_collective meeting = ah_collective_barrier();
    meeting.purpose = AH_FOR_PARAMETERS;
    meeting.where = r->where;
    return ah_group_run(r->group, meeting);
}

static int begin_gather(struct ah_split *split, int b)
{
    struct ah_reducer *r = split->r;
    AH_TRY(ah_arena_fill(split->whole[b]));
    if (!r->device_comm)
        return gather_by_host(split, b);
    return ah_group_start(r->group, gather_call(split, b, split->whole[b]->memory, ah_split_slice(split, b)),
                          &split->work[b]);
}

static int end_gather(struct ah_split *split, int b)
{
    struct ah_work *work = split->work[b];
    bool ordered;
    if (!work)
        return 0;
    split->work[b] = NULL;
    AH_TRY(ah_work_order(work, &ordered));
    if (!ordered)
        return ah_work_wait(work);
    ah_arena_abandon(split->whole[b], work);
    return 0;
}

/* Remember the use of a bucket; returns the one that was used next the last time, -1: none. */
static int split_next(struct ah_split *split, int b)
{
    int room = 4 * (split->r->layout.bucket_count + 1);
    bool known = split->position < split->length && split->sequence[split->position] == b;
    if (split->position == room)
        return -1;
    split->sequence[split->position++] = b;
    if (!known)
        split->length = split->position;
    return split->position < split->length ? split->sequence[split->position] : -1;
}

static int fetch_parameters(struct ah_split *split, int b)
{
    int next = split_next(split, b);
    AH_TRY(ah_reducer_find_way(split->r));
    if (!split->work[b])
        AH_TRY(begin_gather(split, b));
    if (next >= 0 && split->r->device_comm && !split->whole[next]->memory)
        AH_TRY(begin_gather(split, next));
    AH_TRY(end_gather(split, b));
    split_show(split, b, true);
    return 0;
}

int ah_split_fetch(struct ah_split *split, int b)
{
    if (!split)
        return ah_fail(AH_ESTATE, "a sharded parameter or gradient was used after its model was released: read it "
                                  "before accelerator:free_memory");
    if (is_present(split, b))
        return 0;
    return split->gradients ? fetch_gradients(split, b) : fetch_parameters(split, b);
}

/* Release. */

int ah_split_drop(struct ah_split *split, int b)
{
    AH_TRY(end_gather(split, b));
    if (!split->whole[b]->memory)
        return 0;
    split_show(split, b, false);
    ah_arena_empty(split->whole[b]);
    return 0;
}

int ah_split_settle(struct ah_split *split, int b)
{
    if (is_present(split, b))
        AH_TRY(split_copy(split, ah_split_slice(split, b), split_place(split, b), slice_bytes(split, b)));
    return ah_split_drop(split, b);
}

int ah_split_settle_all(struct ah_split *split)
{
    for (int b = 0; b < split->r->layout.bucket_count; b++)
        AH_TRY(ah_split_settle(split, b));
    return 0;
}

int ah_split_rewind(struct ah_split *split)
{
    split->position = 0;
    if (!split->length || !split->r->device_comm || split->whole[split->sequence[0]]->memory)
        return 0;
    return begin_gather(split, split->sequence[0]);
}
