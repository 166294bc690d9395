/* The backend for ranks of one host: shared memory, no thread.
 *
 * An all_reduce goes one of three ways:
 *
 * - direct: every rank's buffer is in its data segment. Rank r reduces slice r of all buffers, in rank order, and
 *   stores the result into all of them. Works are of this kind: other buffers are copied into the segment first.
 * - small: the input is staged before the post, so one wait does; every rank reduces everything itself.
 * - staged: chunk after chunk passes through the two halves of each rank's staging area, one round each; SLICED means
 *   that the own slice of the round's chunk is summed.
 *
 * Rounds: a rank enters round k by advancing ROUND to k + 1, after it has filled half k % 2 of its stage, and after it
 * has completed round k - 1. A rank that has seen all ranks enter round k may therefore overwrite the other half. The
 * first round of a small all_reduce is entered with its post.
 *
 * The first group's staging areas open the segments. Those of its parts are allocated from the segment, one for each
 * group block, and kept: a group block that is free to be used again has a stage that no rank reads any more. */
#include <stdlib.h>
#include <string.h>

#include "comm/control/combine.h"
#include "comm/shm/shm.h"


/* Memory that was freed while works were under way. */
struct pending {
    struct pending *next;
    void *memory;
    size_t bytes;
    uint32_t sequence; /* it is unused once all ranks have done calls up to this */
};

struct shm_work {
    struct ah_work base;
    void *copy; /* of the input, in the segment; NULL when the input itself is there */
    size_t bytes;
};

/* Rounds. */

/* Count a round that the next post announces: no rank sleeps on it, so none is woken. Released all the same, since a
 * peer that waits for an earlier round may read this value and then the data of that round. */
void shm_count_round(struct shm_group *shm, enum ah_counter which)
{
    atomic_store_explicit(&shm->base.peer[shm->base.rank]->counter[which], shm->round, memory_order_release);
}

void shm_enter_round(struct shm_group *shm)
{
    shm->round++;
    ah_group_counter_advance(shm->base.peer[shm->base.rank], AH_ROUND, shm->round);
}

double shm_divisor(const struct shm_group *shm, uint32_t sequence)
{
    double sum = 0;
    for (int r = 0; r < shm->base.size; r++)
        sum += ah_group_call_record(&shm->base, r, sequence)->weight;
    return sum;
}

/* all_reduce */

static void reduce_own_slice(struct shm_group *shm, const struct ah_collective *call, uint32_t sequence)
{
    int size = shm->base.size, rank = shm->base.rank;
    int64_t width = (int64_t)ah_dtype_size(call->dtype), line = 64 / width;
    int64_t length = ((call->count + size - 1) / size + line - 1) / line * line;
    int64_t begin = length * rank, end = begin + length < call->count ? begin + length : call->count;
    if (begin >= end)
        return;
    void *buffer[AH_MAX_RANKS];
    for (int r = 0; r < size; r++)
        buffer[r] = shm_segment(shm, r) + ah_group_call_record(&shm->base, r, sequence)->offset + begin * width;
    ah_combine(call->dtype, call->reduce, buffer, size, (const void *const *)buffer, size, end - begin,
               shm_divisor(shm, sequence));
}

static size_t bytes_of(const struct ah_collective *call)
{
    return (size_t)call->count * ah_dtype_size(call->dtype);
}

void shm_reduce_small(struct shm_group *shm, const struct ah_collective *call)
{
    const void *from[AH_MAX_RANKS];
    for (int r = 0; r < shm->base.size; r++)
        from[r] = shm_stage(shm, r, shm->round - 1);
    ah_combine(call->dtype, call->reduce, (void *const *)&call->out, 1, from, shm->base.size, call->count,
               shm_divisor(shm, shm->base.issued));
}

/* Slice r of a chunk of n elements: rank r's. */
struct slice {
    int64_t begin, end;
};

static struct slice slice_of(int64_t n, int rank, int size, int64_t width)
{
    int64_t line = 64 / width, length = ((n + size - 1) / size + line - 1) / line * line;
    int64_t begin = length * rank < n ? length * rank : n;
    return (struct slice){begin, begin + length < n ? begin + length : n};
}

static int reduce_staged(struct shm_group *shm, const struct ah_collective *call)
{
    int size = shm->base.size, rank = shm->base.rank;
    int64_t width = (int64_t)ah_dtype_size(call->dtype), chunk = AH_STAGE_BYTES / width;
    double divisor = shm_divisor(shm, shm->base.issued);
    for (int64_t at = 0; at < call->count; at += chunk) {
        int64_t n = call->count - at < chunk ? call->count - at : chunk;
        uint32_t round = shm->round;
        memcpy(shm_stage(shm, rank, round), (const char *)call->in + at * width, (size_t)(n * width));
        shm_enter_round(shm);
        AH_TRY(ah_watch_wait(&shm->base, AH_ROUND, shm->round));
        /* Slice r of every stage is read by rank r only, so the sum may replace it. */
        struct slice own = slice_of(n, rank, size, width);
        const void *from[AH_MAX_RANKS];
        for (int r = 0; r < size; r++)
            from[r] = shm_stage(shm, r, round) + own.begin * width;
        void *to[2] = {shm_stage(shm, rank, round) + own.begin * width, (char *)call->out + (at + own.begin) * width};
        ah_combine(call->dtype, call->reduce, to, 2, from, size, own.end - own.begin, divisor);
        ah_group_counter_advance(shm->base.peer[rank], AH_SLICED, shm->round);
        AH_TRY(ah_watch_wait(&shm->base, AH_SLICED, shm->round));
        for (int r = 0; r < size; r++) {
            struct slice theirs = slice_of(n, r, size, width);
            if (r != rank)
                memcpy((char *)call->out + (at + theirs.begin) * width,
                       shm_stage(shm, r, round) + theirs.begin * width, (size_t)((theirs.end - theirs.begin) * width));
        }
    }
    return 0;
}

static int all_reduce(struct shm_group *shm, const struct ah_collective *call)
{
    uint32_t sequence = shm->base.issued;
    if (bytes_of(call) <= SHM_SMALL) {
        shm_reduce_small(shm, call);
        return 0;
    }
    for (int r = 0; r < shm->base.size; r++)
        if (ah_group_call_record(&shm->base, r, sequence)->offset == AH_NO_OFFSET)
            return reduce_staged(shm, call);
    reduce_own_slice(shm, call, sequence);
    ah_group_publish_done(&shm->base, sequence);
    return ah_watch_wait(&shm->base, AH_DONE, sequence);
}

/* Blocking calls. */

int shm_fill_arguments(struct ah_group *group, const struct ah_collective *call, struct ah_call_arguments *out)
{
    struct shm_group *shm = shm_of(group);
    size_t bytes = bytes_of(call);
    if (call->kind != AH_ALL_REDUCE)
        return 0;
    if (bytes > SHM_SMALL) {
        out->offset = ah_segment_offset(shm->segment, call->in, bytes);
        return 0;
    }
    if (bytes)
        memcpy(shm_stage(shm, group->rank, shm->round), call->in, bytes);
    shm->round++;
    shm_count_round(shm, AH_ROUND);
    shm_count_round(shm, AH_SLICED);
    return 0;
}

static int shm_run(struct ah_group *group, const struct ah_collective *call)
{
    return call->kind == AH_ALL_REDUCE ? all_reduce(shm_of(group), call) : shm_exchange(shm_of(group), call);
}

/* Works. */

static int shm_start(struct ah_work *work)
{
    struct shm_group *shm = shm_of(work->group);
    struct shm_work *own = (struct shm_work *)work;
    const struct ah_collective *call = &work->call;
    own->bytes = (size_t)ah_collective_input(call, shm->base.size, shm->base.rank) * ah_dtype_size(call->dtype);
    if (!own->bytes)
        return 0;
    work->arguments.offset = ah_segment_offset(shm->segment, call->in, own->bytes);
    if (work->arguments.offset != AH_NO_OFFSET)
        return 0;
    AH_TRY(ah_segment_alloc(shm->segment, own->bytes, false, &own->copy));
    memcpy(own->copy, call->in, own->bytes);
    work->arguments.offset = ah_segment_offset(shm->segment, own->copy, own->bytes);
    return 0;
}

void shm_take_parts(struct shm_group *shm, const struct ah_collective *call, uint32_t sequence,
                    bool (*wanted)(const struct ah_group *group, int rank))
{
    int size = shm->base.size, rank = shm->base.rank;
    size_t width = ah_dtype_size(call->dtype);
    const void *from[AH_MAX_RANKS] = {NULL};
    struct ah_part part = {0};
    for (int r = 0; r < size; r++) {
        part = ah_collective_part(call, size, r, rank);
        if (!part.count || (wanted && !wanted(&shm->base, r)))
            continue;
        from[r] =
            shm_segment(shm, r) + ah_group_call_record(&shm->base, r, sequence)->offset + (size_t)part.first * width;
        void *to = (char *)call->out + (size_t)part.place * width;
        /* In place, the own part is at its destination. */
        if (!ah_collective_reduces(call) && to != from[r])
            memcpy(to, from[r], (size_t)part.count * width);
    }
    if (ah_collective_reduces(call) && part.count)
        ah_combine(call->dtype, call->reduce, (void *const *)&call->out, 1, from, size, part.count,
                   shm_divisor(shm, sequence));
}

static int shm_carry(struct ah_work *work)
{
    const struct ah_collective *call = &work->call;
    if (call->kind == AH_ALL_REDUCE && call->count)
        reduce_own_slice(shm_of(work->group), call, work->sequence);
    if (call->kind != AH_ALL_REDUCE && !work->abandoned)
        shm_take_parts(shm_of(work->group), call, work->sequence, NULL);
    return 0;
}

static int shm_finish(struct ah_work *work)
{
    struct shm_work *own = (struct shm_work *)work;
    if (own->copy && own->bytes && work->call.kind == AH_ALL_REDUCE)
        memcpy(work->call.out, own->copy, own->bytes);
    return 0;
}

static void shm_drop(struct ah_work *work, bool complete)
{
    struct shm_work *own = (struct shm_work *)work;
    if (own->copy && complete)
        ah_segment_free(shm_of(work->group)->segment, own->copy, own->bytes);
}

/* Messages: the receiver copies them from the sender's segment. */

int shm_give(struct ah_message_request *request)
{
    struct shm_message *own = (struct shm_message *)request;
    struct ah_segment *segment = shm_of(request->group)->segment;
    own->bytes = (size_t)request->message.count * ah_dtype_size(request->message.dtype);
    if (!own->bytes)
        return 0;
    if (request->stays)
        request->offset = ah_segment_offset(segment, request->message.memory, own->bytes);
    if (request->offset != AH_NO_OFFSET)
        return 0;
    AH_TRY(ah_segment_alloc(segment, own->bytes, false, &own->copy));
    memcpy(own->copy, request->message.memory, own->bytes);
    request->offset = ah_segment_offset(segment, own->copy, own->bytes);
    return 0;
}

int shm_fetch(struct ah_message_request *request, bool *done)
{
    size_t bytes = (size_t)request->message.count * ah_dtype_size(request->message.dtype);
    const unsigned char *segment = shm_segment(shm_of(request->group), request->message.peer);
    if (bytes)
        memcpy(request->message.memory, segment + request->header->offset, bytes);
    *done = true;
    return 0;
}

void shm_forget(struct ah_message_request *request, bool complete)
{
    struct shm_message *own = (struct shm_message *)request;
    if (own->copy && complete)
        ah_segment_free(shm_of(request->group)->segment, own->copy, own->bytes);
}

/* Memory. */

static bool is_quiet(struct shm_group *shm, uint32_t sequence)
{
    return !shm->base.poison && ah_reached(shm->base.done, sequence) && ah_group_has_settled(&shm->base, sequence);
}

static void collect_pending(struct shm_group *shm)
{
    for (struct pending **at = &shm->pending; *at;) {
        struct pending *piece = *at;
        if (!is_quiet(shm, piece->sequence)) {
            at = &piece->next;
            continue;
        }
        *at = piece->next;
        ah_segment_free(shm->segment, piece->memory, piece->bytes);
        free(piece);
    }
}

int shm_alloc(struct ah_group *group, size_t bytes, void **out)
{
    struct shm_group *shm = shm_of(group);
    collect_pending(shm);
    return ah_segment_alloc(shm->segment, bytes, true, out);
}

void shm_free(struct ah_group *group, void *memory, size_t bytes)
{
    struct shm_group *shm = shm_of(group);
    if (is_quiet(shm, group->issued)) {
        ah_segment_free(shm->segment, memory, bytes);
        return;
    }
    struct pending *piece = malloc(sizeof *piece);
    if (!piece)
        return; /* the memory stays unused */
    *piece = (struct pending){shm->pending, memory, bytes, group->issued};
    shm->pending = piece;
}

void shm_discard(struct ah_group *group, void *memory, size_t bytes)
{
    ah_segment_discard(memory, bytes);
}

void shm_trim(struct ah_group *group)
{
    collect_pending(shm_of(group));
    shm_collect_common(shm_of(group), false);
    ah_segment_trim(shm_of(group)->segment);
}

void shm_renew(struct ah_group *group)
{
    struct shm_group *shm = shm_of(group);
    shm->round = group->base;
    for (struct pending *piece; (piece = shm->pending) != NULL;) {
        shm->pending = piece->next;
        ah_segment_free(shm->segment, piece->memory, piece->bytes);
        free(piece);
    }
}

/* Opening. */

int shm_open_ranks(struct ah_group *group)
{
    struct shm_group *shm = shm_of(group), *root = shm_of(group->root);
    shm->round = group->base;
    if (root == shm)
        return ah_segment_open(&shm->segment, group->control, group->member[group->rank]);
    shm->segment = root->segment;
    uint64_t *stage = &root->stage[group->block];
    if (!*stage) {
        void *memory;
        AH_TRY(ah_segment_alloc(shm->segment, 2 * AH_STAGE_BYTES, false, &memory));
        *stage = ah_segment_offset(shm->segment, memory, 2 * AH_STAGE_BYTES);
    }
    atomic_store(&group->peer[group->rank]->address, *stage);
    return 0;
}

void shm_close(struct ah_group *group)
{
    struct shm_group *shm = shm_of(group);
    collect_pending(shm);
    while (shm->pending) {
        struct pending *next = shm->pending->next;
        free(shm->pending);
        shm->pending = next;
    }
    shm_collect_common(shm, true);
    if (group->root == group)
        ah_segment_close(shm->segment);
}

const struct ah_backend ah_shm_backend = {
    .name = "shm",
    .group_bytes = sizeof(struct shm_group),
    .work_bytes = sizeof(struct shm_work),
    .message_bytes = sizeof(struct shm_message),
    .open = shm_open_ranks,
    .close = shm_close,
    .fill_arguments = shm_fill_arguments,
    .run = shm_run,
    .start = shm_start,
    .carry = shm_carry,
    .finish = shm_finish,
    .drop = shm_drop,
    .give = shm_give,
    .fetch = shm_fetch,
    .forget = shm_forget,
    .alloc = shm_alloc,
    .free = shm_free,
    .trim = shm_trim,
    .discard = shm_discard,
    .lend = shm_lend,
    .borrow = shm_borrow,
    .give_back = shm_give_back,
    .renew = shm_renew,
};
