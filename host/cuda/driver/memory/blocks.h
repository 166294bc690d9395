/* Blocks of a device's memory and lists of them, sorted by size and address, for cuda/driver/memory/memory.c. */
#pragma once

#include "cuda/driver/api/device.h"

enum { AH_BLOCK_USES = 4 };

struct ah_cuda_block {
    CUdeviceptr at;
    size_t bytes;
    bool used, small;
    bool hole; /* of the range: addresses without memory */
    bool watched; /* a graph has its address: giving it back is counted */
    uint64_t taken; /* the number of its last allocation */
    struct ah_cuda_pool *pool; /* of a graph; NULL: of no pool */
    struct ah_cuda_block *before, *after; /* neighbours in the segment */
    struct ah_cuda_block *chain;          /* in a bucket of those in use */
    CUstream stream[AH_BLOCK_USES];       /* used on these as well */
    CUevent event[AH_BLOCK_USES];         /* while it waits: their places at its release */
    int streams;
};

struct ah_cuda_blocks {
    struct ah_cuda_block **at;
    size_t count, room;
};

/* Is it free for everybody? Not a NULL. */
bool ah_cuda_block_is_spare(const struct ah_cuda_block *block);
/* Split a block after `bytes`; return the rest, its neighbour from now on. NULL: out of memory. */
struct ah_cuda_block *ah_cuda_block_split(struct ah_cuda_block *block, size_t bytes);
/* Join a block with the neighbour after it, which then no longer exists. */
void ah_cuda_block_join(struct ah_cuda_block *block);

/* The place of the first block that is not before `block`. */
size_t ah_cuda_blocks_place(const struct ah_cuda_blocks *list, const struct ah_cuda_block *block);
/* Room for one more. */
int ah_cuda_blocks_room(struct ah_cuda_blocks *list);
/* Both keep the order of the others; there is room. */
void ah_cuda_blocks_insert(struct ah_cuda_blocks *list, size_t place, struct ah_cuda_block *block);
struct ah_cuda_block *ah_cuda_blocks_take_out(struct ah_cuda_blocks *list, size_t place);
