/* Blocks are sorted by address, so that an interior address is found by bisection; a free one of the requested size is
 * found by a scan, which only captures pay. Invariant: `bytes` of a block and of each of its users have the same
 * rounded size, so that either may free it. */
#include "capture/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/alloc.h"
#include "base/memory/array.h"

struct ah_pool {
    struct ah_pool_block *block;
    size_t count, room, releases;
    struct ah_pool *next;
};

/* All open pools. The count is read without the lock, by every release of a tensor. Relaxed: the thread that releases a
 * block of a pool has received it from a call after the opening of the pool, so it cannot read a count of 0; any
 * other block is looked up in vain, under the lock. */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ah_pool *all_pools;
static atomic_int pool_count;

int ah_pool_open(struct ah_pool **out)
{
    struct ah_pool *pool = calloc(1, sizeof *pool);
    AH_TRY_MEMORY(pool, "out of memory");
    pthread_mutex_lock(&pool_lock);
    pool->next = all_pools;
    all_pools = pool;
    pthread_mutex_unlock(&pool_lock);
    atomic_fetch_add_explicit(&pool_count, 1, memory_order_relaxed);
    *out = pool;
    return 0;
}

void ah_pool_close(struct ah_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool_lock);
    struct ah_pool **at = &all_pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    pthread_mutex_unlock(&pool_lock);
    atomic_fetch_sub_explicit(&pool_count, 1, memory_order_relaxed);
    for (size_t i = 0; i < pool->count; i++)
        if (pool->block[i].freed)
            ah_block_free(pool->block[i].at, pool->block[i].bytes);
    free(pool->block);
    free(pool);
}

/* The number of blocks that begin at or below the address. */
static size_t pool_place(const struct ah_pool *pool, const void *address)
{
    size_t low = 0, high = pool->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)pool->block[middle].at <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct ah_pool_block *ah_pool_find(struct ah_pool *pool, const void *address)
{
    size_t place = pool_place(pool, address);
    if (!place)
        return NULL;
    struct ah_pool_block *block = &pool->block[place - 1];
    size_t room = block->bytes ? block->bytes : 1;
    return (uintptr_t)address - (uintptr_t)block->at < (AH_KEEPS_FREED ? ah_block_room(room) : room) ? block : NULL;
}

static bool pool_fits(const struct ah_pool_block *block, size_t bytes)
{
    return AH_KEEPS_FREED ? ah_block_room(block->bytes) == ah_block_room(bytes) : block->bytes == bytes;
}

/* The free block that was released last: it is the most likely to be in a cache. */
static struct ah_pool_block *pool_reuse(struct ah_pool *pool, size_t bytes)
{
    struct ah_pool_block *best = NULL;
    for (size_t i = 0; i < pool->count; i++)
        if (pool->block[i].freed > (best ? best->freed : 0) && pool_fits(&pool->block[i], bytes))
            best = &pool->block[i];
    return best;
}

static void pool_insert(struct ah_pool *pool, void *at, size_t bytes)
{
    size_t place = pool_place(pool, at);
    memmove(&pool->block[place + 1], &pool->block[place], (pool->count - place) * sizeof *pool->block);
    pool->count++;
    pool->block[place] = (struct ah_pool_block){.at = at, .bytes = bytes, .use = 1};
}

/* The allocator is called without the lock: it may run Lua's collector, which releases tensors. */
int ah_pool_allocate(struct ah_pool *pool, size_t bytes, bool within_op, void **out)
{
    pthread_mutex_lock(&pool_lock);
    struct ah_pool_block *block = pool_reuse(pool, bytes);
    if (block) {
        block->freed = 0;
        block->use++;
        block->written = false;
        block->within_op = within_op;
        *out = block->at;
    }
    int status = ah_grow(&pool->block, pool->count + 1, &pool->room, sizeof *pool->block);
    pthread_mutex_unlock(&pool_lock);
    if (block || status < 0)
        return block ? 0 : status;
    AH_TRY(ah_block_alloc(bytes, out));
    pthread_mutex_lock(&pool_lock);
    pool_insert(pool, *out, bytes);
    ah_pool_find(pool, *out)->within_op = within_op;
    pthread_mutex_unlock(&pool_lock);
    return 0;
}

int ah_pool_adopt(struct ah_pool *pool, void *at, size_t bytes)
{
    pthread_mutex_lock(&pool_lock);
    int status = ah_grow(&pool->block, pool->count + 1, &pool->room, sizeof *pool->block);
    if (status == 0)
        pool_insert(pool, at, bytes);
    pthread_mutex_unlock(&pool_lock);
    return status;
}

bool ah_pool_release(void *at)
{
    bool found = false;
    if (!atomic_load_explicit(&pool_count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&pool_lock);
    for (struct ah_pool *pool = all_pools; pool && !found; pool = pool->next) {
        struct ah_pool_block *block = ah_pool_find(pool, at);
        found = block && block->at == at;
        if (found)
            block->freed = ++pool->releases;
    }
    pthread_mutex_unlock(&pool_lock);
    return found;
}
