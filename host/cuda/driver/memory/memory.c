/* Segments are lists of neighbouring blocks; free blocks are in one array for small and one for large ones, sorted by
 * size and address, blocks in use in a table by address. One lock for all: it is held briefly, except during the
 * driver's own allocations. */
#include "cuda/driver/memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver/memory/memory_state.h"
#include "cuda/driver/memory/range.h"

#define MIB ((size_t)1 << 20)

enum { ROUND = 512, AFTER_DEAD = 64 };

static struct ah_cuda_block **bucket_of(struct ah_cuda_memory *memory, CUdeviceptr at)
{
    return &memory->used[(at / ROUND * 0x9e3779b97f4a7c15u) >> 52];
}

struct ah_cuda_block *ah_cuda_memory_find(struct ah_cuda_memory *memory, const void *address)
{
    struct ah_cuda_block *block = *bucket_of(memory, (CUdeviceptr)(uintptr_t)address);
    while (block && block->at != (CUdeviceptr)(uintptr_t)address)
        block = block->chain;
    return block;
}

static void set_used(struct ah_cuda_memory *memory, struct ah_cuda_block *block)
{
    struct ah_cuda_block **bucket = bucket_of(memory, block->at);
    block->used = true;
    block->watched = false;
    block->taken = (uint64_t)memory->stats.allocations;
    memory->used_count++;
    block->chain = *bucket;
    *bucket = block;
    memory->stats.allocations++;
    memory->stats.live += block->bytes;
    if (memory->stats.live > memory->stats.peak)
        memory->stats.peak = memory->stats.live;
}

static void set_unused(struct ah_cuda_memory *memory, struct ah_cuda_block *block)
{
    struct ah_cuda_block **link = bucket_of(memory, block->at);
    while (*link != block)
        link = &(*link)->chain;
    *link = block->chain;
    block->used = false;
    memory->used_count--;
    memory->lost += block->watched;
    memory->stats.live -= block->bytes;
}

/* Segments. */

/* The list for a block while it is free. */
static struct ah_cuda_blocks *list_of(struct ah_cuda_memory *memory, const struct ah_cuda_block *block)
{
    return block->pool ? &block->pool->spare[block->small] : &memory->spare[block->small];
}

static size_t segment_bytes(size_t bytes)
{
    if (bytes <= MIB)
        return 2 * MIB;
    if (bytes < 10 * MIB)
        return 20 * MIB;
    return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* A new block that is all of a new piece of the driver's memory. AH_ENOMEM. */
static int new_segment(struct ah_cuda_memory *memory, size_t bytes, struct ah_cuda_block **out)
{
    struct ah_cuda_block *block = calloc(1, sizeof *block);
    AH_TRY_MEMORY(block, "out of memory");
    CUstreamCaptureMode mode = ah_cuda_relax();
    CUresult code = ah_cuda.memory_alloc(&block->at, bytes);
    ah_cuda_tighten(mode);
    if (code != CUDA_SUCCESS) {
        free(block);
        return ah_cuda_check(code, "%s: %zu bytes", memory->cuda->device->name, bytes);
    }
    block->bytes = bytes;
    memory->reserved += bytes;
    memory->stats.system_calls++;
    *out = block;
    return 0;
}

static void free_segment(struct ah_cuda_memory *memory, struct ah_cuda_block *block)
{
    ah_cuda.memory_free(block->at);
    memory->reserved -= block->bytes;
    free(block);
}

void ah_cuda_memory_remove_spare(struct ah_cuda_memory *memory, struct ah_cuda_block *block)
{
    struct ah_cuda_blocks *list = list_of(memory, block);
    ah_cuda_blocks_take_out(list, ah_cuda_blocks_place(list, block));
}

/* An unused block becomes free for everybody. Its list has room: a place for each block there is (make_room at its
 * birth and at each cut). */
void ah_cuda_memory_add_spare(struct ah_cuda_memory *memory, struct ah_cuda_block *block)
{
    if (ah_cuda_block_is_spare(block->after)) {
        ah_cuda_memory_remove_spare(memory, block->after);
        ah_cuda_block_join(block);
    }
    if (ah_cuda_block_is_spare(block->before)) {
        ah_cuda_memory_remove_spare(memory, block->before);
        block = block->before;
        ah_cuda_block_join(block);
    }
    struct ah_cuda_blocks *list = list_of(memory, block);
    if (ah_cuda_blocks_room(list) == 0)
        ah_cuda_blocks_insert(list, ah_cuda_blocks_place(list, block), block);
}

/* Split off the part over `bytes`, where that is worth a block. */
static void memory_cut(struct ah_cuda_memory *memory, struct ah_cuda_block *block, size_t bytes)
{
    size_t rest = block->bytes - bytes;
    if (block->small ? rest < ROUND : rest <= MIB)
        return;
    struct ah_cuda_block *after = ah_cuda_block_split(block, bytes);
    if (!after)
        return;
    struct ah_cuda_blocks *list = list_of(memory, after);
    if (ah_cuda_blocks_room(list) == 0)
        ah_cuda_blocks_insert(list, ah_cuda_blocks_place(list, after), after);
    else
        ah_cuda_block_join(block);
}

/* Blocks that another stream has used. */

static void forget_streams(struct ah_cuda_block *block)
{
    for (int i = 0; i < block->streams; i++)
        ah_cuda.event_destroy(block->event[i]);
    block->streams = 0;
}

/* Note where the streams are; a block for which that fails stays away for good. */
void ah_cuda_memory_wait(struct ah_cuda_memory *memory, struct ah_cuda_block *block)
{
    bool noted = ah_cuda_enter(memory->cuda) == 0 && ah_cuda_blocks_room(&memory->waiting) == 0;
    for (int i = 0; noted && i < block->streams; i++)
        noted = ah_cuda.event_create(&block->event[i], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
                ah_cuda.event_record(block->event[i], block->stream[i]) == CUDA_SUCCESS;
    if (noted)
        memory->waiting.at[memory->waiting.count++] = block;
}

/* The blocks to poll: those released first, up to one that is still in use (streams mostly end in that order); all;
 * all, and waited for. */
enum waiting { FIRST, ALL, WAIT };

/* Free the blocks that other streams have completed; false when there are none. */
static bool collect_waiting(struct ah_cuda_memory *memory, enum waiting how)
{
    size_t kept = 0, i = 0, count = memory->waiting.count;
    for (; i < count && (how != FIRST || kept == 0); i++) {
        struct ah_cuda_block *block = memory->waiting.at[i];
        bool through = true;
        for (int k = 0; through && k < block->streams; k++)
            through = (how == WAIT ? ah_cuda.event_synchronise(block->event[k])
                                   : ah_cuda.event_query(block->event[k])) == CUDA_SUCCESS;
        if (through) {
            forget_streams(block);
            ah_cuda_memory_add_spare(memory, block);
        } else {
            memory->waiting.at[kept++] = block;
        }
    }
    if (i > kept)
        memmove(memory->waiting.at + kept, memory->waiting.at + i, (count - i) * sizeof memory->waiting.at[0]);
    memory->waiting.count = kept + count - i;
    return i > kept;
}

/* Giving memory back to the driver. */

static void free_dead(struct ah_cuda_memory *memory)
{
    if (memory->dead.count == 0)
        return;
    ah_cuda.stream_synchronise(memory->cuda->compute);
    for (size_t i = 0; i < memory->dead.count; i++) {
        for (int k = 0; k < memory->dead.at[i]->streams; k++)
            ah_cuda.stream_synchronise(memory->dead.at[i]->stream[k]);
        free_segment(memory, memory->dead.at[i]);
    }
    memory->dead.count = 0;
}

static void memory_trim(struct ah_cuda_memory *memory)
{
    collect_waiting(memory, WAIT);
    free_dead(memory);
    bool synchronised = false;
    for (int small = 0; small < 2; small++) {
        struct ah_cuda_blocks *list = &memory->spare[small];
        for (size_t i = list->count; i-- > 0;) {
            if (list->at[i]->before || list->at[i]->after || ah_cuda_range_has(memory->range, list->at[i]))
                continue;
            if (!synchronised)
                ah_cuda.stream_synchronise(memory->cuda->compute);
            synchronised = true;
            free_segment(memory, ah_cuda_blocks_take_out(list, i));
        }
    }
    ah_cuda_range_trim(memory);
}

/* Allocating and freeing. */

static int take_direct(struct ah_cuda_memory *memory, size_t bytes, struct ah_cuda_block **out)
{
    if (memory->dead.count >= AFTER_DEAD)
        free_dead(memory);
    return new_segment(memory, bytes, out);
}

/* The smallest free block that fits; NULL when there is none. */
static struct ah_cuda_block *find_spare(struct ah_cuda_memory *memory, struct ah_cuda_blocks *list, size_t bytes)
{
    struct ah_cuda_block wanted = {.bytes = bytes};
    size_t place = ah_cuda_blocks_place(list, &wanted);
    return place < list->count ? ah_cuda_blocks_take_out(list, place) : NULL;
}

static int take_cached(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool, size_t bytes,
                       struct ah_cuda_block **out)
{
    bool small = bytes <= MIB, ranged = !pool && !small && ah_cuda_range_grows(memory->range);
    struct ah_cuda_blocks *list = pool ? &pool->spare[small] : &memory->spare[small];
    if (!pool)
        collect_waiting(memory, FIRST);
    struct ah_cuda_block *block = find_spare(memory, list, bytes);
    if (!block && !pool && collect_waiting(memory, ALL))
        block = find_spare(memory, list, bytes);
    if (!block && ranged && ah_cuda_range_grow(memory, bytes) == 0)
        block = find_spare(memory, list, bytes);
    if (!block) {
        /* The rest of the driver's memory may be less than a piece of the range. */
        ranged = ranged && ah_cuda_range_grows(memory->range);
        size_t size = ranged ? (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB) : segment_bytes(bytes);
        AH_TRY(new_segment(memory, size, &block));
        block->small = small;
        block->pool = pool;
    }
    memory_cut(memory, block, bytes);
    *out = block;
    return 0;
}

static int memory_take(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool, size_t bytes,
                       struct ah_cuda_block **out)
{
    return memory->direct && !pool ? take_direct(memory, bytes, out) : take_cached(memory, pool, bytes, out);
}

/* The pool from which this thread allocates. */
static struct ah_cuda_pool *own_pool(struct ah_cuda_memory *memory)
{
    return memory->pool && pthread_equal(memory->taker, pthread_self()) ? memory->pool : NULL;
}

/* One try, under the lock, after the cache was given back to the driver if `trims`. */
static int try_take(struct ah_cuda_memory *memory, size_t bytes, bool trims, struct ah_cuda_block **out)
{
    AH_LOCK_SCOPE(&memory->lock);
    if (trims && !memory->pool)
        memory_trim(memory);
    int status = memory_take(memory, own_pool(memory), bytes, out);
    if (status == 0)
        set_used(memory, *out);
    return status;
}

static int fail_take(struct ah_cuda_memory *memory, size_t bytes)
{
    AH_LOCK_SCOPE(&memory->lock);
    memory->stats.ooms++;
    return ah_cuda_memory_fail(memory, bytes);
}

/* While a graph is captured nothing is freed to make room. */
static bool may_retry(struct ah_cuda_memory *memory)
{
    AH_LOCK_SCOPE(&memory->lock);
    bool may = !memory->pool;
    memory->stats.retries += may;
    return may;
}

static int take_block(struct ah_cuda_memory *memory, size_t bytes, bool collects, void **out)
{
    if (bytes > SIZE_MAX / 2)
        return ah_fail(AH_ENOMEM, "%s: out of memory: %zu bytes asked for", memory->cuda->device->name, bytes);
    size_t asked = bytes ? (bytes + ROUND - 1) / ROUND * ROUND : ROUND;
    struct ah_cuda_block *block = NULL;
    AH_TRY(ah_cuda_enter(memory->cuda));
    int status = try_take(memory, asked, false, &block);
    if (status == AH_ENOMEM && may_retry(memory)) {
        if (collects && ah_block_relieve())
            status = try_take(memory, asked, false, &block);
        if (status == AH_ENOMEM)
            status = try_take(memory, asked, true, &block);
    }
    if (status < 0)
        return status == AH_ENOMEM ? fail_take(memory, asked) : status;
    *out = (void *)(uintptr_t)block->at;
    if (!memory->poison)
        return 0;
    return ah_cuda_check(ah_cuda.fill_bytes(block->at, 0xff, asked, memory->cuda->compute), "%s: poisoning",
                         memory->cuda->device->name);
}

int ah_cuda_memory_take(struct ah_cuda_memory *memory, size_t bytes, void **out)
{
    return take_block(memory, bytes, true, out);
}

int ah_cuda_memory_take_uncollected(struct ah_cuda_memory *memory, size_t bytes, void **out)
{
    return take_block(memory, bytes, false, out);
}

void ah_cuda_memory_give(struct ah_cuda_memory *memory, void *address)
{
    if (!address)
        return;
    AH_LOCK_SCOPE(&memory->lock);
    struct ah_cuda_block *block = ah_cuda_memory_find(memory, address);
    if (block) {
        set_unused(memory, block);
        /* A graph's memory is cut into blocks in any case. */
        if (memory->direct && !block->pool && !block->before && !block->after) {
            if (ah_cuda_blocks_room(&memory->dead) == 0)
                memory->dead.at[memory->dead.count++] = block;
        } else if (block->streams && own_pool(memory)) {
            if (ah_cuda_blocks_room(&memory->later) == 0)
                memory->later.at[memory->later.count++] = block;
        } else if (block->streams) {
            ah_cuda_memory_wait(memory, block);
        } else {
            ah_cuda_memory_add_spare(memory, block);
        }
    }
}

int ah_cuda_memory_used_on(struct ah_cuda_memory *memory, const void *address, CUstream stream)
{
    int status = 0;
    AH_LOCK_SCOPE(&memory->lock);
    struct ah_cuda_block *block = ah_cuda_memory_find(memory, address);
    bool known = !block;
    for (int i = 0; block && i < block->streams; i++)
        known = known || block->stream[i] == stream;
    if (!known && block->streams == AH_BLOCK_USES)
        status = ah_fail(AH_ESTATE, "%s: a block is used on more than %d streams", memory->cuda->device->name,
                         AH_BLOCK_USES);
    else if (!known)
        block->stream[block->streams++] = stream;
    return status;
}

void ah_cuda_memory_share(struct ah_cuda_memory *memory, const struct ah_cuda_device *peer)
{
    AH_LOCK_SCOPE(&memory->lock);
    if (memory->range)
        ah_cuda_range_share(memory->range, peer);
}

void ah_cuda_memory_stats(struct ah_cuda_memory *memory, struct ah_memory_stats *stats)
{
    AH_LOCK_SCOPE(&memory->lock);
    *stats = memory->stats;
    stats->cached = memory->reserved - memory->stats.live;
}

void ah_cuda_memory_reset_peak(struct ah_cuda_memory *memory)
{
    AH_LOCK_SCOPE(&memory->lock);
    memory->stats.peak = memory->stats.live;
}

void ah_cuda_memory_trim(struct ah_cuda_memory *memory)
{
    if (ah_cuda_make_current(memory->cuda) < 0)
        return;
    AH_LOCK_SCOPE(&memory->lock);
    if (!memory->pool)
        memory_trim(memory);
}

int ah_cuda_memory_open(struct ah_cuda_memory **out, struct ah_cuda_device *cuda)
{
    const char *choice = getenv("ACCELHOST_CUDA_ALLOCATOR");
    bool direct = choice && !strcmp(choice, "driver"), poison = choice && !strcmp(choice, "poison");
    bool segments = choice && !strcmp(choice, "segments");
    if (choice && *choice && !direct && !poison && !segments)
        return ah_fail(AH_EINVAL,
                       "ACCELHOST_CUDA_ALLOCATOR: expected \"driver\", \"poison\", \"segments\" or nothing, got \"%s\"",
                       choice);
    struct ah_cuda_memory *memory = calloc(1, sizeof *memory);
    AH_TRY_MEMORY(memory, "out of memory");
    memory->cuda = cuda;
    memory->direct = direct;
    memory->poison = poison;
    pthread_mutex_init(&memory->lock, NULL);
    *out = memory;
    return direct || segments ? 0 : ah_cuda_range_open(&memory->range, cuda);
}

void ah_cuda_memory_close(struct ah_cuda_memory *memory)
{
    if (!memory)
        return;
    ah_cuda_memory_trim(memory);
    ah_cuda_range_close(memory->range);
    struct ah_cuda_blocks *lists[] = {&memory->spare[0], &memory->spare[1], &memory->waiting, &memory->dead,
                                      &memory->later};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        free(lists[i]->at);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}
