/* The private memory of a captured step of the CPU: the addresses that its records contain stay valid and are used by
 * nothing else.
 *
 * Its blocks are those of the CPU's allocator. One that is freed during the capture serves later tensors of the
 * capture, as in the plain step; after the capture it stays with the pool. Blocks of tensors that are still alive when
 * the pool closes become ordinary blocks of the allocator. Lua thread only, except ah_pool_release. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_pool;

struct ah_pool_block {
    char *at;
    size_t bytes;   /* as requested by its first user */
    size_t freed;   /* the number of releases before its own, from 1; 0: it is in use */
    uint32_t use;   /* the number of its tensors so far */
    bool written;   /* by a record since it was allocated */
    bool within_op; /* its tensor was made by an op, not by the script */
};

int ah_pool_open(struct ah_pool **out);
void ah_pool_close(struct ah_pool *pool);

/* A block for a tensor of `bytes` bytes. AH_ENOMEM. */
int ah_pool_allocate(struct ah_pool *pool, size_t bytes, bool within_op, void **out);

/* Make a block of the CPU's allocator, in use, one of the pool. AH_ENOMEM: it is not. */
int ah_pool_adopt(struct ah_pool *pool, void *block, size_t bytes);

/* Return a block to its pool; false if it is of none. Any thread. */
bool ah_pool_release(void *block);

/* Return the block that contains the address, valid until the next call; NULL if the pool has none. */
struct ah_pool_block *ah_pool_find(struct ah_pool *pool, const void *address);
