/* The backend for ranks of one host: shared memory, no thread.
 *
 * A collective is posted (its fingerprint written to the own ring, the own `posted` counter advanced); when every rank
 * has posted it and all fingerprints agree, each rank does its part. Three ways:
 *
 * - direct: every rank's buffer lies in its data segment. Rank r reduces slice r of all buffers, in rank order, and
 *   stores the result into all of them; `reduced` says that it has. Asynchronous works are always of this kind.
 * - small: the input is staged before the post, so one wait does; every rank reduces everything itself.
 * - staged: chunk after chunk passes through the two halves of each rank's staging area, one round each; `sliced`
 *   says that the own slice of the round's chunk is summed.
 *
 * Rounds: a rank enters round k by advancing `round` to k + 1, after it has filled half k % 2 of its stage, and after
 * it is through with round k - 1. Whoever has seen all ranks enter round k may therefore overwrite the other half.
 * The first round of a call is entered with its post.
 *
 * The counters `posted` and `reduced` move through the same sequence of calls on every rank. A ring entry is
 * overwritten only when all ranks have reduced the call it describes. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/tell.h"
#include "base/threads.h"
#include "base/time.h"
#include "comm/backend.h"
#include "comm/combine.h"

enum {
    SMALL_BYTES = 8 * 1024,
    SPINS = 2000,
    TEMP_CLASSES = 48,
};
static const int64_t slice_ns = 50 * 1000000;    /* longest sleep between two looks at the peers */
static const int64_t longest_slice_ns = 200 * 1000000; /* what is longer, this process was not running */
static const int64_t notice_ns = 10 * 1000000000ll;    /* a wait that is told */
static const int64_t witness_ns = 100 * 1000000; /* for ranks to join a mismatch */

struct temp { /* a free piece of the own segment, kept for reuse */
    struct temp *next;
};

struct shm_group {
    struct ah_group base;
    struct ah_board *board;
    struct ah_board_slot *mine;
    uint32_t posted, reduced, round;
    uint32_t ring_safe; /* every rank has reduced up to here, as far as we looked */
    struct ah_work *first, **last; /* asynchronous works whose own slice is not reduced yet, in order */
    struct temp *temps[TEMP_CLASSES];
    size_t used; /* bytes of the own segment */
    int spins;
    int64_t timeout_ns;
};

static inline struct shm_group *shm_of(struct ah_group *group)
{
    return (struct shm_group *)group;
}

static inline void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline uint32_t counter_of(struct shm_group *shm, int rank, enum ah_counter which)
{
    return atomic_load_explicit(&ah_board_slot(shm->board, rank)->counter[which], memory_order_acquire);
}

static inline unsigned char *stage_of(struct shm_group *shm, int rank, uint32_t round)
{
    return shm->board->segment[rank] + (size_t)(round & 1) * AH_STAGE_BYTES;
}

static const struct ah_post *post_of(struct shm_group *shm, int rank, uint32_t sequence)
{
    return &ah_board_slot(shm->board, rank)->post[sequence % AH_BOARD_POSTS];
}

/* Fingerprints. */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* The lowest rank that has posted the call, and the lowest that differs from it; false when none differs. */
static bool find_mismatch(struct shm_group *shm, uint32_t sequence, int *first, int *other)
{
    *first = -1;
    for (int r = 0; r < shm->base.size; r++) {
        if (!ah_reached(counter_of(shm, r, AH_POSTED), sequence))
            continue;
        if (*first < 0) {
            *first = r;
        } else if (post_of(shm, r, sequence)->hash != post_of(shm, *first, sequence)->hash) {
            *other = r;
            return true;
        }
    }
    return false;
}

/* All ranks are to tell the same story: give those that are on their way a moment to post. */
static void await_witnesses(struct shm_group *shm, uint32_t sequence)
{
    for (int64_t start = ah_now_ns(); ah_now_ns() - start < witness_ns;) {
        bool expected = false;
        for (int r = 0; r < shm->base.size; r++)
            expected |= !ah_reached(counter_of(shm, r, AH_POSTED), sequence) &&
                        atomic_load(&ah_board_slot(shm->board, r)->state) == AH_RANK_RUNNING;
        if (!expected)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

static int mismatch(struct shm_group *shm, uint32_t sequence)
{
    char left[256], right[256];
    int other = 0, rank = 0;
    await_witnesses(shm, sequence);
    find_mismatch(shm, sequence, &other, &rank);
    const struct ah_post *a = post_of(shm, other, sequence), *b = post_of(shm, rank, sequence);
    return ah_fail(AH_EMISMATCH, "collective #%u differs: rank %d %s at %s; rank %d %s at %s", sequence, other,
                   ah_post_describe(a, left, sizeof left), a->where, rank,
                   ah_post_describe(b, right, sizeof right), b->where);
}

/* Compare what those ranks brought that have posted the call. */
static int compare_posts(struct shm_group *shm, uint32_t sequence)
{
    int first, other;
    return find_mismatch(shm, sequence, &first, &other) ? mismatch(shm, sequence) : 0;
}

/* Waiting. */

/* "rank 1 is at train.lua:12, all_reduce #41" */
static const char *whereabouts(struct shm_group *shm, int rank, char *text, size_t bytes)
{
    uint32_t posted = counter_of(shm, rank, AH_POSTED);
    const struct ah_post *post = post_of(shm, rank, posted);
    if (posted == 0)
        snprintf(text, bytes, "rank %d has not come to its first collective", rank);
    else
        snprintf(text, bytes, "rank %d %s %s, %s #%u", rank,
                 ah_reached(shm->posted, posted + 1) ? "was last seen at" : "is at", post->where,
                 ah_collective_name(post->kind), posted);
    return text;
}

/* The call that a wait is for. */
static uint32_t awaited(struct shm_group *shm, enum ah_counter which, uint32_t target)
{
    return which == AH_POSTED || which == AH_REDUCED ? target : shm->posted;
}

/* A peer that has not come and never will. */
static int check_peers(struct shm_group *shm, enum ah_counter which, uint32_t target)
{
    uint32_t sequence = awaited(shm, which, target);
    const struct ah_post *own = post_of(shm, shm->base.rank, sequence);
    const char *call = ah_collective_name(own->kind);
    for (int r = 0; r < shm->base.size; r++) {
        struct ah_board_slot *slot = ah_board_slot(shm->board, r);
        int group_status = atomic_load(&slot->group_status), state = atomic_load(&slot->state);
        if (r == shm->base.rank || ah_reached(counter_of(shm, r, which), target))
            continue;
        char where[160];
        switch (state) {
        case AH_RANK_ENDED:
            return ah_fail(AH_EPEER, "%s #%u at %s: rank %d ended without it (%s)", call, sequence, own->where,
                           r, whereabouts(shm, r, where, sizeof where));
        case AH_RANK_FAILED: {
            int line = (int)strcspn(slot->text, "\n");
            return ah_fail(AH_EPEER, "%s #%u at %s: lost rank %d, which failed: %.*s", call, sequence, own->where, r,
                           line, slot->text);
        }
        case AH_RANK_DIED:
            return ah_fail(AH_EPEER, "%s #%u at %s: lost rank %d, which died (%s)", call, sequence, own->where, r,
                           whereabouts(shm, r, where, sizeof where));
        default:
            if (group_status)
                return ah_fail(AH_EPEER, "%s #%u at %s: rank %d gave up: %s", call, sequence, own->where, r,
                               slot->group_text);
        }
    }
    return 0;
}

/* Whom all others wait for: of the ranks that have not come, the one that is furthest behind. */
static int laggard(struct shm_group *shm, enum ah_counter which)
{
    int last = -1;
    uint32_t least = 0;
    for (int r = 0; r < shm->base.size; r++) {
        uint32_t value = counter_of(shm, r, which);
        if (r == shm->base.rank || (last >= 0 && ah_reached(value, least)))
            continue;
        last = r;
        least = value;
    }
    return last;
}

/* One line for each place at which the job gets stuck, from whichever rank has waited longest. */
static void tell_of_wait(struct shm_group *shm, enum ah_counter which, uint32_t sequence)
{
    char where[160];
    int rank = laggard(shm, which);
    const struct ah_post *own = post_of(shm, shm->base.rank, sequence);
    if (!ah_board_first_to_tell(shm->board, rank, counter_of(shm, rank, AH_POSTED)))
        return;
    ah_tell("%s #%u at %s has waited %.0f s: %s", ah_collective_name(own->kind), sequence, own->where,
            (double)notice_ns / 1e9, whereabouts(shm, rank, where, sizeof where));
}

static int timed_out(struct shm_group *shm, enum ah_counter which, uint32_t sequence)
{
    char where[160];
    int rank = laggard(shm, which);
    const struct ah_post *own = post_of(shm, shm->base.rank, sequence);
    atomic_store(&shm->mine->blamed, rank);
    return ah_fail(AH_ETIMEOUT, "%s #%u at %s: timed out after %.3g s: %s", ah_collective_name(own->kind), sequence,
                   own->where, (double)shm->timeout_ns / 1e9, whereabouts(shm, rank, where, sizeof where));
}

static int wait_slowly(struct shm_group *shm, int rank, enum ah_counter which, uint32_t target)
{
    struct ah_board_slot *slot = ah_board_slot(shm->board, rank);
    int64_t waited = 0, before = ah_now_ns();
    bool told = false;
    for (;;) {
        uint32_t seen = counter_of(shm, rank, which);
        if (ah_reached(seen, target))
            return 0;
        if (which == AH_POSTED)
            AH_TRY(compare_posts(shm, target));
        AH_TRY(check_peers(shm, which, target));
        int64_t left = shm->timeout_ns - waited;
        if (left <= 0)
            return timed_out(shm, which, awaited(shm, which, target));
        if (waited >= notice_ns && !told) {
            tell_of_wait(shm, which, awaited(shm, which, target));
            told = true;
        }
        ah_board_sleep(slot, which, seen, left < slice_ns ? left : slice_ns);
        int64_t now = ah_now_ns();
        waited += now - before < longest_slice_ns ? now - before : longest_slice_ns;
        before = now;
    }
}

static int wait_all(struct shm_group *shm, enum ah_counter which, uint32_t target)
{
    for (int r = 0; r < shm->base.size; r++) {
        if (r == shm->base.rank)
            continue;
        int spins = shm->spins;
        while (!ah_reached(counter_of(shm, r, which), target)) {
            relax();
            if (--spins < 0) {
                AH_TRY(wait_slowly(shm, r, which, target));
                break;
            }
        }
    }
    return 0;
}

static bool all_reached(struct shm_group *shm, enum ah_counter which, uint32_t target)
{
    for (int r = 0; r < shm->base.size; r++)
        if (r != shm->base.rank && !ah_reached(counter_of(shm, r, which), target))
            return false;
    return true;
}

/* Posting. */

static int advance(struct shm_group *shm, uint32_t upto, bool block);

static int write_post(struct shm_group *shm, const struct ah_collective *what, uint64_t offset)
{
    uint32_t sequence = shm->posted + 1;
    if (sequence - shm->ring_safe > AH_BOARD_POSTS) {
        uint32_t needed = sequence - AH_BOARD_POSTS;
        /* The peers may wait for our share of it, and our own entry must have been compared. */
        AH_TRY(advance(shm, needed, true));
        AH_TRY(wait_all(shm, AH_REDUCED, needed));
        shm->ring_safe = needed;
    }
    struct ah_group *group = &shm->base;
    struct ah_post *post = &shm->mine->post[sequence % AH_BOARD_POSTS];
    post->sequence = sequence;
    post->kind = (uint8_t)what->kind;
    post->dtype = (uint8_t)what->dtype;
    post->reduce = (uint8_t)what->reduce;
    post->ndim = (int8_t)group->ndim;
    post->root = what->root;
    post->note = group->note;
    post->weight = group->weight;
    post->count = what->count;
    post->offset = offset;
    memcpy(post->where, group->where, sizeof post->where);
    uint64_t hash = mix(sequence, (uint64_t)what->kind << 32 | (uint64_t)what->dtype << 16 | (uint64_t)what->reduce);
    hash = mix(hash, (uint64_t)(int64_t)what->root);
    /* Ragged calls agree on all counts and on the trailing dims, others on the whole shape. */
    int skip = 0;
    if (what->kind == AH_ALL_GATHER_V) {
        for (int r = 0; r < group->size; r++)
            hash = mix(hash, (uint64_t)what->counts[r]);
        skip = 1;
    } else {
        hash = mix(hash, (uint64_t)what->count);
    }
    hash = mix(hash, (uint64_t)(group->ndim + 1));
    for (int d = 0; d < group->ndim; d++) {
        post->size[d] = group->shape[d];
        if (d >= skip)
            hash = mix(hash, (uint64_t)group->shape[d]);
    }
    post->hash = hash;
    return 0;
}

static void publish_post(struct shm_group *shm)
{
    shm->posted++;
    ah_board_advance(shm->mine, AH_POSTED, shm->posted);
}

static void publish_reduced(struct shm_group *shm, uint32_t sequence)
{
    shm->reduced = sequence;
    ah_board_advance(shm->mine, AH_REDUCED, sequence);
}

/* Not seen by peers before the next publication. */
static void count_round(struct shm_group *shm, enum ah_counter which)
{
    atomic_store_explicit(&shm->mine->counter[which], shm->round, memory_order_relaxed);
}

static void enter_round(struct shm_group *shm)
{
    shm->round++;
    ah_board_advance(shm->mine, AH_ROUND, shm->round);
}

static uint64_t offset_of(struct shm_group *shm, const void *buffer, size_t bytes)
{
    const unsigned char *base = shm->board->segment[shm->base.rank];
    const unsigned char *at = buffer;
    if (at < base + 2 * AH_STAGE_BYTES || at + bytes > base + shm->used)
        return AH_NO_OFFSET;
    return (uint64_t)(at - base);
}

/* What a mean divides by: the ranks' weights, added in rank order. */
static double divisor_of(struct shm_group *shm, uint32_t sequence)
{
    double sum = 0;
    for (int r = 0; r < shm->base.size; r++)
        sum += post_of(shm, r, sequence)->weight;
    return sum;
}

/* Direct reduction. */

static void reduce_own_slice(struct shm_group *shm, const struct ah_collective *what, uint32_t sequence)
{
    int size = shm->base.size, rank = shm->base.rank;
    int64_t width = (int64_t)ah_dtype_size(what->dtype), line = 64 / width;
    int64_t share = ((what->count + size - 1) / size + line - 1) / line * line;
    int64_t begin = share * rank, end = begin + share < what->count ? begin + share : what->count;
    if (begin >= end)
        return;
    void *buffer[AH_BOARD_MAX_RANKS];
    for (int r = 0; r < size; r++)
        buffer[r] = shm->board->segment[r] + post_of(shm, r, sequence)->offset + begin * width;
    ah_combine(what->dtype, what->reduce, buffer, size, (const void *const *)buffer, size, end - begin,
               divisor_of(shm, sequence));
}

/* Do this rank's part of the asynchronous works up to `upto`; without `block` only as far as all ranks have posted. */
static int advance(struct shm_group *shm, uint32_t upto, bool block)
{
    while (shm->first && ah_reached(upto, shm->first->sequence)) {
        struct ah_work *work = shm->first;
        if (block)
            AH_TRY(wait_all(shm, AH_POSTED, work->sequence));
        else if (!all_reached(shm, AH_POSTED, work->sequence))
            return 0;
        AH_TRY(compare_posts(shm, work->sequence));
        for (int r = 0; r < shm->base.size; r++)
            work->note |= post_of(shm, r, work->sequence)->note;
        reduce_own_slice(shm, &work->what, work->sequence);
        publish_reduced(shm, work->sequence);
        shm->first = work->next;
        if (!shm->first)
            shm->last = &shm->first;
    }
    return 0;
}

/* Post a blocking call, finish what was started before it, and wait for everyone. */
static int meet(struct shm_group *shm, const struct ah_collective *what, uint64_t offset)
{
    AH_TRY(write_post(shm, what, offset));
    publish_post(shm);
    AH_TRY(advance(shm, shm->posted - 1, true));
    AH_TRY(wait_all(shm, AH_POSTED, shm->posted));
    return compare_posts(shm, shm->posted);
}

/* The ways of a reduction to all. */

static int all_reduce_small(struct shm_group *shm, const struct ah_collective *what)
{
    size_t bytes = (size_t)what->count * ah_dtype_size(what->dtype);
    uint32_t round = shm->round;
    if (bytes)
        memcpy(stage_of(shm, shm->base.rank, round), what->in, bytes);
    shm->round++;
    count_round(shm, AH_ROUND);
    count_round(shm, AH_SLICED);
    AH_TRY(meet(shm, what, AH_NO_OFFSET));
    const void *from[AH_BOARD_MAX_RANKS];
    for (int r = 0; r < shm->base.size; r++)
        from[r] = stage_of(shm, r, round);
    ah_combine(what->dtype, what->reduce, (void *const *)&what->out, 1, from, shm->base.size, what->count,
               divisor_of(shm, shm->posted));
    return 0;
}

static int all_reduce_staged(struct shm_group *shm, const struct ah_collective *what)
{
    int size = shm->base.size, rank = shm->base.rank;
    int64_t width = (int64_t)ah_dtype_size(what->dtype), line = 64 / width, chunk = AH_STAGE_BYTES / width;
    double divisor = divisor_of(shm, shm->posted);
    for (int64_t at = 0; at < what->count; at += chunk) {
        int64_t n = what->count - at < chunk ? what->count - at : chunk;
        uint32_t round = shm->round;
        memcpy(stage_of(shm, rank, round), (const char *)what->in + at * width, (size_t)(n * width));
        enter_round(shm);
        AH_TRY(wait_all(shm, AH_ROUND, shm->round));
        /* Slice r of every stage is read by rank r only, so the sum may take its place. */
        int64_t share = ((n + size - 1) / size + line - 1) / line * line;
        int64_t begin = share * rank < n ? share * rank : n, end = begin + share < n ? begin + share : n;
        const void *from[AH_BOARD_MAX_RANKS];
        for (int r = 0; r < size; r++)
            from[r] = stage_of(shm, r, round) + begin * width;
        void *to[2] = {stage_of(shm, rank, round) + begin * width, (char *)what->out + (at + begin) * width};
        ah_combine(what->dtype, what->reduce, to, 2, from, size, end - begin, divisor);
        ah_board_advance(shm->mine, AH_SLICED, shm->round);
        AH_TRY(wait_all(shm, AH_SLICED, shm->round));
        for (int r = 0; r < size; r++) {
            begin = share * r < n ? share * r : n;
            end = begin + share < n ? begin + share : n;
            if (r != rank)
                memcpy((char *)what->out + (at + begin) * width, stage_of(shm, r, round) + begin * width,
                       (size_t)((end - begin) * width));
        }
    }
    return 0;
}

static int all_reduce(struct shm_group *shm, const struct ah_collective *what)
{
    size_t bytes = (size_t)what->count * ah_dtype_size(what->dtype);
    if (bytes <= SMALL_BYTES)
        return all_reduce_small(shm, what);
    AH_TRY(meet(shm, what, offset_of(shm, what->in, bytes)));
    bool direct = true;
    for (int r = 0; r < shm->base.size; r++)
        direct &= post_of(shm, r, shm->posted)->offset != AH_NO_OFFSET;
    if (!direct)
        return all_reduce_staged(shm, what);
    reduce_own_slice(shm, what, shm->posted);
    publish_reduced(shm, shm->posted);
    return wait_all(shm, AH_REDUCED, shm->posted);
}

/* Exchanges: each round every rank stages up to `parts` pieces, and takes what concerns it from its peers. */
static int exchange(struct shm_group *shm, const struct ah_collective *what)
{
    int size = shm->base.size, rank = shm->base.rank, root = what->root;
    int64_t width = (int64_t)ah_dtype_size(what->dtype);
    enum ah_collective_kind kind = what->kind;
    /* Kinds whose input has a part per rank stage all parts side by side. */
    bool split = kind == AH_REDUCE_SCATTER || kind == AH_SCATTER || kind == AH_ALL_TO_ALL;
    bool gives = (kind != AH_BROADCAST && kind != AH_SCATTER) || rank == root;
    bool takes = kind == AH_BROADCAST ? rank != root : kind == AH_GATHER ? rank == root : true;
    int64_t piece = AH_STAGE_BYTES / width / (split ? size : 1) / 64 * 64, longest = what->count;
    int64_t first[AH_BOARD_MAX_RANKS + 1] = {0}; /* where a rank's elements start in `out` of the gathers */
    for (int r = 0; r < size; r++) {
        int64_t count = what->counts ? what->counts[r] : what->count;
        first[r + 1] = first[r] + count;
        longest = count > longest ? count : longest;
    }
    const char *in = what->in;
    char *out = what->out;
    for (int64_t at = 0; at < longest; at += piece) {
        uint32_t round = shm->round;
        unsigned char *stage = stage_of(shm, rank, round);
        int64_t n = longest - at < piece ? longest - at : piece;
        if (gives && split) {
            for (int r = 0; r < size; r++)
                memcpy(stage + r * piece * width, in + (r * what->count + at) * width, (size_t)(n * width));
        } else if (gives && at < what->count) {
            int64_t own = what->count - at < n ? what->count - at : n;
            memcpy(stage, in + at * width, (size_t)(own * width));
        }
        enter_round(shm);
        count_round(shm, AH_SLICED);
        AH_TRY(wait_all(shm, AH_ROUND, shm->round));
        if (!takes)
            continue;
        if (kind == AH_REDUCE_SCATTER) {
            const void *from[AH_BOARD_MAX_RANKS];
            void *to = out + at * width;
            for (int r = 0; r < size; r++)
                from[r] = stage_of(shm, r, round) + rank * piece * width;
            ah_combine(what->dtype, what->reduce, &to, 1, from, size, n, divisor_of(shm, shm->posted));
        } else if (kind == AH_BROADCAST) {
            memcpy(out + at * width, stage_of(shm, root, round), (size_t)(n * width));
        } else if (kind == AH_SCATTER) {
            memcpy(out + at * width, stage_of(shm, root, round) + rank * piece * width, (size_t)(n * width));
        } else if (kind == AH_ALL_TO_ALL) {
            for (int r = 0; r < size; r++)
                memcpy(out + (r * what->count + at) * width, stage_of(shm, r, round) + rank * piece * width,
                       (size_t)(n * width));
        } else {
            for (int r = 0; r < size; r++) {
                int64_t count = first[r + 1] - first[r], m = count - at < n ? count - at : n;
                if (m > 0)
                    memcpy(out + (first[r] + at) * width, stage_of(shm, r, round), (size_t)(m * width));
            }
        }
    }
    return 0;
}

static int shm_run(struct ah_group *group, const struct ah_collective *what)
{
    struct shm_group *shm = shm_of(group);
    if (what->kind == AH_ALL_REDUCE) {
        AH_TRY(all_reduce(shm, what));
    } else {
        AH_TRY(meet(shm, what, AH_NO_OFFSET));
        if (what->kind != AH_BARRIER)
            AH_TRY(exchange(shm, what));
    }
    if (shm->reduced != shm->posted)
        publish_reduced(shm, shm->posted);
    return 0;
}

/* Memory of the own segment. */

static int bump(struct shm_group *shm, size_t bytes, void **out)
{
    size_t rounded = (bytes + 63) / 64 * 64;
    AH_TRY(ah_board_grow(shm->board, shm->base.rank, shm->used + rounded));
    *out = shm->board->segment[shm->base.rank] + shm->used;
    shm->used += rounded;
    return 0;
}

static int shm_arena_alloc(struct ah_group *group, size_t bytes, void **out)
{
    return bump(shm_of(group), bytes, out);
}

/* Copies of buffers that live elsewhere come in powers of two and are reused. */
static int temp_alloc(struct shm_group *shm, size_t bytes, int *size_class, void **out)
{
    int c = 6;
    while (((size_t)1 << c) < bytes)
        c++;
    if (c >= TEMP_CLASSES)
        return ah_fail(AH_ENOMEM, "a buffer of %zu bytes is too large", bytes);
    *size_class = c;
    if (shm->temps[c]) {
        *out = shm->temps[c];
        shm->temps[c] = shm->temps[c]->next;
        return 0;
    }
    return bump(shm, (size_t)1 << c, out);
}

/* Asynchronous works. */

static void shm_drop(struct ah_work *work)
{
    struct shm_group *shm = shm_of(work->group);
    /* Only after a failure is a dropped work still listed. */
    for (struct ah_work **at = &shm->first; *at; at = &(*at)->next) {
        if (*at != work)
            continue;
        *at = work->next;
        if (!*at)
            shm->last = at;
        break;
    }
    /* After a failure peers may still write there. */
    if (work->private_buffer && !work->group->poison) {
        struct temp *temp = work->what.out;
        temp->next = shm->temps[work->size_class];
        shm->temps[work->size_class] = temp;
    }
    free(work);
}

static int shm_start(struct ah_group *group, const struct ah_collective *what, struct ah_work **out)
{
    struct shm_group *shm = shm_of(group);
    size_t bytes = (size_t)what->count * ah_dtype_size(what->dtype);
    struct ah_work *work = calloc(1, sizeof *work);
    int status;
    if (!work)
        return ah_fail(AH_ENOMEM, "out of memory");
    work->group = group;
    work->what = *what;
    if (offset_of(shm, what->out, bytes) == AH_NO_OFFSET) {
        work->private_buffer = what->out;
        AH_TRYGO(temp_alloc(shm, bytes, &work->size_class, &work->what.out), failed);
        memcpy(work->what.out, what->in, bytes);
        work->what.in = work->what.out;
    }
    AH_TRYGO(write_post(shm, what, offset_of(shm, work->what.out, bytes)), failed);
    publish_post(shm);
    work->sequence = shm->posted;
    *shm->last = work;
    shm->last = &work->next;
    AH_TRYGO(advance(shm, shm->posted, false), listed);
    *out = work;
    return 0;
listed:
    shm_drop(work);
    return status;
failed:
    free(work);
    return status;
}

static int shm_test(struct ah_work *work, bool *done)
{
    struct shm_group *shm = shm_of(work->group);
    AH_TRY(advance(shm, shm->posted, false));
    *done = ah_reached(shm->reduced, work->sequence) && all_reached(shm, AH_REDUCED, work->sequence);
    return 0;
}

static int shm_wait(struct ah_work *work)
{
    struct shm_group *shm = shm_of(work->group);
    AH_TRY(advance(shm, work->sequence, true));
    AH_TRY(wait_all(shm, AH_REDUCED, work->sequence));
    if (work->private_buffer)
        memcpy(work->private_buffer, work->what.out, (size_t)work->what.count * ah_dtype_size(work->what.dtype));
    return 0;
}

static void shm_poisoned(struct ah_group *group)
{
    struct shm_group *shm = shm_of(group);
    snprintf(shm->mine->group_text, sizeof shm->mine->group_text, "%.*s",
             (int)sizeof shm->mine->group_text - 1, group->poison_text);
    atomic_store(&shm->mine->group_status, group->poison);
    ah_board_wake(shm->board);
}

static void shm_close(struct ah_group *group)
{
    free(group);
}

static const struct ah_group_ops shm_ops = {
    .name = "shm",
    .run = shm_run,
    .start = shm_start,
    .test = shm_test,
    .wait = shm_wait,
    .drop = shm_drop,
    .arena_alloc = shm_arena_alloc,
    .close = shm_close,
    .poisoned = shm_poisoned,
};

int ah_shm_open(struct ah_group **out, struct ah_board *board, int rank, int64_t timeout_ns)
{
    struct shm_group *shm = calloc(1, sizeof *shm);
    if (!shm)
        return ah_fail(AH_ENOMEM, "out of memory");
    if (!timeout_ns) {
        const char *text = getenv("ACCELHOST_TIMEOUT");
        char *end = NULL;
        double seconds = text ? strtod(text, &end) : 600;
        if (text && (end == text || *end || !(seconds > 0) || seconds > 1e9)) {
            free(shm);
            return ah_fail(AH_EINVAL, "ACCELHOST_TIMEOUT: expected seconds above 0, got '%s'", text);
        }
        timeout_ns = (int64_t)(seconds * 1e9);
    }
    shm->base = (struct ah_group){
        .ops = &shm_ops, .rank = rank, .size = board->size, .ndim = -1, .weight = 1, .where = "?"};
    shm->board = board;
    shm->mine = ah_board_slot(board, rank);
    shm->last = &shm->first;
    shm->used = 2 * AH_STAGE_BYTES;
    shm->timeout_ns = timeout_ns;
    /* With more ranks than processors whom we wait for may need this one. */
    shm->spins = board->size <= ah_cpu_count() ? SPINS : 20;
    *out = &shm->base;
    return 0;
}
