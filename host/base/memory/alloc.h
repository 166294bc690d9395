/* The block allocator for tensor memory, with process-wide byte counters.
 *
 * Blocks are 64-byte aligned and not zeroed. A freed block goes to a cache by size class, not to the system, so a
 * training step in its steady state makes no system allocation and causes no page faults. Any thread may call.
 *
 * Under AddressSanitizer freed blocks are not cached (AH_KEEPS_FREED is 0) and blocks have the requested size: a cache
 * would hide a use after free, spare bytes at a block's end an overrun. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define AH_KEEPS_FREED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AH_KEEPS_FREED 0
#endif
#endif
#ifndef AH_KEEPS_FREED
#define AH_KEEPS_FREED 1
#endif

struct ah_memory_stats {
    size_t live;            /* bytes in blocks now handed out */
    size_t peak;            /* largest `live` so far */
    size_t cached;          /* bytes in freed blocks kept for reuse */
    uint64_t allocations;   /* blocks handed out so far */
    uint64_t system_calls;  /* allocations that asked the system for memory */
    uint64_t retries;       /* requests that the system refused until cached or collectable memory was freed */
    uint64_t ooms;          /* requests that failed */
};

/* Allocate a block of at least `bytes` (a valid pointer for 0 too). When memory is out, the cache is freed and the
 * request repeated once; then AH_ENOMEM. */
int ah_block_alloc(size_t bytes, void **out);

/* Free a block; `bytes` is the size that was requested. NULL is ignored. */
void ah_block_free(void *block, size_t bytes);

/* Return the size of the block that ah_block_alloc allocates for `bytes`. */
size_t ah_block_room(size_t bytes);

/* Return all cached blocks to the system. */
void ah_block_trim(void);

/* The counts at this moment; the high-water mark is since the start. */
struct ah_memory_stats ah_memory_stats(void);

/* Call `watch` for each block that is allocated (`bytes` as rounded) or freed (`bytes` negative), one at a time, with
 * the bytes in freed blocks that are kept then; NULL: stop. */
void ah_block_watch(void (*watch)(const void *block, int64_t bytes, size_t cached));

enum ah_collect_reason {
    AH_COLLECT_EMPTY,  /* AH_ENOMEM would be reported */
    AH_COLLECT_GROWTH, /* no freed block serves a request, so the process would grow: where much may be freed */
    AH_COLLECT_JOIN,   /* a peer collects, and this thread would wait for it: where a collection is due soon */
};

/* Set the function that frees blocks that the garbage collector still holds; the binding sets it. It returns false when
 * it did not collect, as on a thread without Lua. */
void ah_block_on_pressure(bool (*collect)(enum ah_collect_reason reason));

/* Call it now, for an allocator of other memory that has run out; false when none is set or nothing was collected. */
bool ah_block_relieve(void);

/* Call it when this thread waits for a peer that collects: the peer holds up its whole group, and ranks that collect at
 * the same time lose that time once. */
void ah_block_join(void);
