/* A freed block waits in the list of its size class; large ones are in regions (base/memory/region.h). Blocks of medium
 * size, which the lists keep, are in regions too, once there are many of them: matrices are read from huge pages a
 * quarter faster, but a small program would waste memory. Invariant: a class and its rounded size follow from the
 * requested bytes alone, since a block knows neither; one lock guards all. */
#include "base/memory/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/region.h"
#include "base/status/status.h"

/* Four classes per power of two from 64 bytes up: at most 25 % of a block is waste. Blocks of LARGE_BYTES and more are
 * one class, LARGE. */
enum { LARGE = 4 * (20 - 6) + 1, MIN_BYTES = 64, LARGE_BYTES = 1 << 20, MEDIUM_BYTES = 32 << 10,
       FEW_BYTES = 16 << 20 };

struct free_block {
    struct free_block *next;
};

static pthread_mutex_t alloc_lock = PTHREAD_MUTEX_INITIALIZER;
static struct free_block *alloc_cache[LARGE];
static struct ah_memory_stats alloc_stats;
static void (*alloc_watch)(const void *block, int64_t bytes, size_t cached);
static bool (*pressure_collect)(enum ah_collect_reason reason);

static int class_of(size_t bytes, size_t *rounded)
{
    if (bytes <= MIN_BYTES) {
        *rounded = MIN_BYTES;
        return 0;
    }
    if (bytes > LARGE_BYTES) {
        *rounded = (bytes + AH_REGION_UNIT - 1) / AH_REGION_UNIT * AH_REGION_UNIT;
        return LARGE;
    }
    int power = 63 - __builtin_clzll(bytes - 1); /* 2^power < bytes <= 2^(power+1) */
    size_t step = (size_t)1 << (power - 2);
    size_t steps = (bytes - 1 - ((size_t)1 << power)) / step + 1;
    *rounded = ((size_t)1 << power) + steps * step;
    return 4 * (power - 6) + (int)steps;
}

size_t ah_block_room(size_t bytes)
{
    size_t rounded = bytes;
    class_of(bytes, &rounded);
    return rounded;
}

static void *system_alloc(size_t bytes, size_t rounded)
{
    static size_t medium_bytes;
    void *block = NULL;
    if (AH_KEEPS_FREED && rounded > MEDIUM_BYTES) { /* rounded to a multiple of 8 KiB */
        if (medium_bytes >= FEW_BYTES)
            return ah_region_grow_listed(rounded);
        medium_bytes += rounded;
    }
    return posix_memalign(&block, 64, AH_KEEPS_FREED ? rounded : bytes) ? NULL : block;
}

static void trim_locked(void)
{
    for (int i = 0; i < LARGE; i++) {
        size_t rounded = i == 0 ? MIN_BYTES : ((size_t)1 << ((i - 1) / 4 + 6)) / 4 * (size_t)((i - 1) % 4 + 5);
        while (alloc_cache[i]) {
            struct free_block *block = alloc_cache[i];
            alloc_cache[i] = block->next;
            alloc_stats.cached -= rounded;
            if (rounded > MEDIUM_BYTES && ah_region_has(block))
                ah_region_free(block, rounded);
            else
                free(block);
        }
    }
    ah_region_trim();
}

/* A block that was freed before, or NULL. */
static void *alloc_reuse(int class, size_t rounded)
{
    if (!AH_KEEPS_FREED)
        return NULL;
    if (class == LARGE)
        return ah_region_reuse(rounded);
    struct free_block *block = alloc_cache[class];
    if (block) {
        alloc_cache[class] = block->next;
        alloc_stats.cached -= rounded;
    }
    return block;
}

/* A block from the system; NULL when that refuses. */
static void *alloc_grow(int class, size_t bytes, size_t rounded)
{
    void *block = AH_KEEPS_FREED && class == LARGE ? ah_region_grow(rounded) : system_alloc(bytes, rounded);
    alloc_stats.system_calls++;
    if (block)
        return block;
    alloc_stats.retries++;
    trim_locked();
    return AH_KEEPS_FREED && class == LARGE ? ah_region_grow(rounded) : system_alloc(bytes, rounded);
}

/* Without `grow`: NULL when no block that was freed before serves. */
static void *alloc_block(int class, size_t bytes, size_t rounded, bool grow)
{
    AH_LOCK_SCOPE(&alloc_lock);
    void *block = alloc_reuse(class, rounded);
    if (!block && grow)
        block = alloc_grow(class, bytes, rounded);
    if (block) {
        alloc_stats.allocations++;
        alloc_stats.live += rounded;
        if (alloc_stats.live > alloc_stats.peak)
            alloc_stats.peak = alloc_stats.live;
        if (alloc_watch)
            alloc_watch(block, (int64_t)rounded, alloc_stats.cached + ah_region_cached());
    }
    return block;
}

static void count_failure(void)
{
    AH_LOCK_SCOPE(&alloc_lock);
    alloc_stats.ooms++;
}

int ah_block_alloc(size_t bytes, void **out)
{
    if (bytes > ((size_t)1 << 45))
        return ah_fail(AH_ENOMEM, "out of memory: a block of %zu bytes was asked for", bytes);
    size_t rounded;
    int class = class_of(bytes, &rounded);
    *out = alloc_block(class, bytes, rounded, false);
    if (!*out && pressure_collect)
        pressure_collect(AH_COLLECT_GROWTH);
    if (!*out)
        *out = alloc_block(class, bytes, rounded, true);
    if (!*out && ah_block_relieve())
        *out = alloc_block(class, bytes, rounded, true);
    if (!*out)
        count_failure();
    if (!*out) {
        struct ah_memory_stats now = ah_memory_stats();
        return ah_fail(AH_ENOMEM, "out of memory: %zu bytes asked for, %.1f MiB live, %.1f MiB cached", bytes,
                       (double)now.live / 1048576, (double)now.cached / 1048576);
    }
    return 0;
}

void ah_block_free(void *block, size_t bytes)
{
    if (!block)
        return;
    size_t rounded;
    int class = class_of(bytes, &rounded);
    AH_LOCK_SCOPE(&alloc_lock);
    alloc_stats.live -= rounded;
    if (!AH_KEEPS_FREED) {
        free(block);
    } else if (class == LARGE) {
        ah_region_free(block, rounded);
    } else {
        struct free_block *freed = block;
        freed->next = alloc_cache[class];
        alloc_cache[class] = freed;
        alloc_stats.cached += rounded;
    }
    if (alloc_watch)
        alloc_watch(block, -(int64_t)rounded, alloc_stats.cached + ah_region_cached());
}

void ah_block_trim(void)
{
    AH_LOCK_SCOPE(&alloc_lock);
    trim_locked();
}

struct ah_memory_stats ah_memory_stats(void)
{
    AH_LOCK_SCOPE(&alloc_lock);
    struct ah_memory_stats copy = alloc_stats;
    copy.cached += ah_region_cached();
    return copy;
}

void ah_block_watch(void (*watch)(const void *block, int64_t bytes, size_t cached))
{
    AH_LOCK_SCOPE(&alloc_lock);
    alloc_watch = watch;
}

void ah_block_on_pressure(bool (*collect)(enum ah_collect_reason reason))
{
    pressure_collect = collect;
}

bool ah_block_relieve(void)
{
    return pressure_collect && pressure_collect(AH_COLLECT_EMPTY);
}

void ah_block_join(void)
{
    if (pressure_collect)
        pressure_collect(AH_COLLECT_JOIN);
}
