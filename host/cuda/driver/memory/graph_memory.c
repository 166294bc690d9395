/* A graph's memory, and its use of the common memory: a table of the blocks that were in use when its capture began, in
 * which every word of its kernels' arguments is searched. */
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "cuda/driver/memory/memory_state.h"

int ah_cuda_pool_open(struct ah_cuda_pool **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

static int by_address(const void *a, const void *b)
{
    const struct ah_cuda_seen *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Record the common blocks in use. */
static int note_live(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool)
{
    pool->live = malloc((memory->used_count + 1) * sizeof *pool->live);
    pool->live_count = 0;
    AH_TRY_MEMORY(pool->live, "out of memory");
    for (int i = 0; i < AH_BLOCK_BUCKETS; i++)
        for (const struct ah_cuda_block *block = memory->used[i]; block; block = block->chain)
            if (block->pool != pool)
                pool->live[pool->live_count++] = (struct ah_cuda_seen){
                    .at = block->at, .bytes = block->bytes, .taken = block->taken};
    qsort(pool->live, pool->live_count, sizeof *pool->live, by_address);
    return 0;
}

int ah_cuda_pool_use(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool)
{
    AH_LOCK_SCOPE(&memory->lock);
    int status = note_live(memory, pool);
    if (status == 0) {
        memory->pool = pool;
        memory->taker = pthread_self();
    }
    return status;
}

void ah_cuda_pool_leave(struct ah_cuda_memory *memory)
{
    AH_LOCK_SCOPE(&memory->lock);
    free(memory->pool->live);
    memory->pool->live = NULL;
    memory->pool->live_count = 0;
    memory->pool = NULL;
    for (size_t i = 0; i < memory->later.count; i++)
        ah_cuda_memory_wait(memory, memory->later.at[i]);
    memory->later.count = 0;
}

/* Note that a graph has an address, if it is one in a block of everybody's. */
static int graph_memory_see(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool, uint64_t word)
{
    size_t low = 0, high = pool->live_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (pool->live[middle].at <= word)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || word - pool->live[low - 1].at >= pool->live[low - 1].bytes)
        return 0;
    struct ah_cuda_seen *live = &pool->live[low - 1];
    if (live->known)
        return 0;
    AH_TRY(ah_grow(&pool->seen, pool->seen_count + 1, &pool->seen_room, sizeof pool->seen[0]));
    live->known = true;
    pool->seen[pool->seen_count++] = *live;
    struct ah_cuda_block *block = ah_cuda_memory_find(memory, (const void *)(uintptr_t)live->at);
    if (block && block->taken == live->taken)
        block->watched = true;
    return 0;
}

int ah_cuda_pool_see(struct ah_cuda_memory *memory, const void *words, size_t bytes)
{
    int status = 0;
    AH_LOCK_SCOPE(&memory->lock);
    for (size_t at = 0; status == 0 && at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)words + at, sizeof word);
        if (word)
            status = graph_memory_see(memory, memory->pool, word);
    }
    return status;
}

size_t ah_cuda_pool_lost(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool)
{
    size_t bytes = 0;
    AH_LOCK_SCOPE(&memory->lock);
    for (size_t i = 0; memory->lost != pool->checked && !bytes && i < pool->seen_count; i++) {
        const struct ah_cuda_seen *seen = &pool->seen[i];
        const struct ah_cuda_block *block = ah_cuda_memory_find(memory, (const void *)(uintptr_t)seen->at);
        if (!block || block->taken != seen->taken)
            bytes = seen->bytes;
    }
    if (!bytes)
        pool->checked = memory->lost;
    return bytes;
}

void ah_cuda_pool_close(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool)
{
    pthread_mutex_lock(&memory->lock);
    for (int i = 0; i < AH_BLOCK_BUCKETS; i++)
        for (struct ah_cuda_block *block = memory->used[i]; block; block = block->chain)
            if (block->pool == pool)
                block->pool = NULL;
    for (size_t i = 0; i < memory->waiting.count; i++)
        if (memory->waiting.at[i]->pool == pool)
            memory->waiting.at[i]->pool = NULL;
    for (int small = 0; small < 2; small++) {
        for (size_t i = 0; i < pool->spare[small].count; i++) {
            struct ah_cuda_block *block = pool->spare[small].at[i];
            block->pool = NULL;
            if (ah_cuda_blocks_room(&memory->spare[small]) == 0)
                ah_cuda_blocks_insert(&memory->spare[small], ah_cuda_blocks_place(&memory->spare[small], block), block);
        }
        free(pool->spare[small].at);
    }
    pthread_mutex_unlock(&memory->lock);
    free(pool->seen);
    free(pool);
}
