/* The state that the allocator (memory.c) and its pools (graph_memory.c) share. */
#pragma once

#include <pthread.h>

#include "cuda/driver/memory/blocks.h"
#include "cuda/driver/memory/memory.h"

enum { AH_BLOCK_BUCKETS = 4096 };

/* A block that a graph knows of: it is still that block while it is in use and its number is the same. */
struct ah_cuda_seen {
    CUdeviceptr at;
    size_t bytes;
    uint64_t taken;
    bool known; /* of `live`: it is in `seen` */
};

struct ah_cuda_pool {
    struct ah_cuda_blocks spare[2];
    struct ah_cuda_seen *live; /* while it is used: the common blocks in use when that began, sorted */
    size_t live_count;
    struct ah_cuda_seen *seen; /* those of them that a graph has addresses of */
    size_t seen_count, seen_room;
    uint64_t checked; /* `lost` when all that was seen was still there */
};

struct ah_cuda_memory {
    struct ah_cuda_device *cuda;
    struct ah_cuda_range *range; /* the range of large blocks (range.h); NULL: they are in segments */
    pthread_mutex_t lock;
    bool direct;                    /* each block is the driver's */
    bool poison;                    /* each is 0xff when it is handed out */
    struct ah_cuda_blocks spare[2]; /* free blocks: large, small */
    struct ah_cuda_blocks waiting;  /* released, but another stream may not be through with them */
    struct ah_cuda_blocks dead;     /* direct: released and to be freed */
    struct ah_cuda_block *used[AH_BLOCK_BUCKETS];
    size_t used_count;
    struct ah_cuda_pool *pool; /* from which `taker` allocates; NULL: as all threads */
    pthread_t taker;
    struct ah_cuda_blocks later; /* released while a pool is used, by which the driver is not to be called */
    uint64_t lost;               /* watched blocks that were given back so far */
    size_t reserved;             /* bytes of all segments */
    struct ah_memory_stats stats;
};

/* Under the lock. The block in use that begins at an address, or NULL. */
struct ah_cuda_block *ah_cuda_memory_find(struct ah_cuda_memory *memory, const void *address);
/* Add an unused block to the free ones, joined with free neighbours; remove a free one from its list. */
void ah_cuda_memory_add_spare(struct ah_cuda_memory *memory, struct ah_cuda_block *block);
void ah_cuda_memory_remove_spare(struct ah_cuda_memory *memory, struct ah_cuda_block *block);
/* AH_ENOMEM with a text that lists the memory in use. */
int ah_cuda_memory_fail(struct ah_cuda_memory *memory, size_t bytes);
/* A released block that other streams used becomes free when they have completed their uses; one whose positions in
 * them cannot be recorded is never reused. */
void ah_cuda_memory_wait(struct ah_cuda_memory *memory, struct ah_cuda_block *block);
