/* The caching allocator of a device's memory, ordered by its compute stream.
 *
 * Memory is allocated from the driver in segments and cut into blocks with PyTorch's sizes: requests are rounded up to
 * 512 bytes; those up to 1 MiB are in segments of 2 MiB, larger ones are in one range of addresses that grows
 * (range.h). Where the device has no such ranges, in a graph's pool and with $ACCELHOST_CUDA_ALLOCATOR=segments, blocks
 * up to 10 MiB
 * are cut from segments of 20 MiB, and larger ones have a separate segment, a multiple of 2 MiB. The smallest free
 * block that fits is cut, however large (PyTorch's max_split_size is for segments, whose parts are unusable while one
 * of them is in use), and freed neighbours join. A freed block may be reused at once, since its next user uses it on
 * the compute stream, after the previous users; a block that was also used on another stream waits until that stream
 * has passed its release.
 *
 * Segments, and pieces of the range, are returned to the driver only when it has no more, or on trim: the device is
 * waited for then. $ACCELHOST_CUDA_ALLOCATOR=driver asks the driver for each block instead, so that tools that watch
 * over allocations see every one; freed blocks are returned at the next allocation, never at their release. With
 * `poison` each block is 0xff (NaN) when it is handed out, so that specs see elements that a kernel leaves unwritten.
 *
 * Any thread may call. */
#pragma once

#include "base/status/status.h"
#include "cuda/driver/api/device.h"

struct ah_cuda_pool;

int ah_cuda_memory_open(struct ah_cuda_memory **out, struct ah_cuda_device *cuda);
void ah_cuda_memory_close(struct ah_cuda_memory *memory);

/* A block of at least `bytes`, also of 0. When the driver has no more, Lua's collector runs if this is its thread, then
 * cached segments are returned to the driver; no lock that a tensor's release needs may be held. AH_ENOMEM lists the
 * memory in use. */
int ah_cuda_memory_take(struct ah_cuda_memory *memory, size_t bytes, void **out);
/* The same without the collector. */
int ah_cuda_memory_take_uncollected(struct ah_cuda_memory *memory, size_t bytes, void **out);
/* Free a block; NULL is ignored. */
void ah_cuda_memory_give(struct ah_cuda_memory *memory, void *block);

/* A block that is freed at the end of the block of code in which AH_CUDA_SCRATCH defines it. */
struct ah_cuda_scratch {
    struct ah_cuda_memory *memory;
    void *at; /* NULL before ah_cuda_scratch_take */
};
#define AH_CUDA_SCRATCH(name, device) \
    AH_CLEANUP(ah_cuda_scratch_give) struct ah_cuda_scratch name = {ah_cuda_state(device)->memory, NULL}
static inline int ah_cuda_scratch_take(struct ah_cuda_scratch *scratch, size_t bytes)
{
    return ah_cuda_memory_take(scratch->memory, bytes, &scratch->at);
}
static inline void ah_cuda_scratch_give(const struct ah_cuda_scratch *scratch)
{
    ah_cuda_memory_give(scratch->memory, scratch->at);
}

/* A block is used on this stream, which is not the compute stream, from now on to its release. */
int ah_cuda_memory_used_on(struct ah_cuda_memory *memory, const void *block, CUstream stream);

/* Let a peer access this device's memory, present and later allocations. */
void ah_cuda_memory_share(struct ah_cuda_memory *memory, const struct ah_cuda_device *peer);

/* A pool: memory reserved for one graph. Blocks returned to it serve the graph's later allocations only, since each
 * replay writes there. While a pool is used all allocations of this thread are from it, the driver is called for memory
 * only, and the graph's contents are searched for addresses in other blocks (ah_cuda_pool_see). */
int ah_cuda_pool_open(struct ah_cuda_pool **out);
int ah_cuda_pool_use(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool);
void ah_cuda_pool_leave(struct ah_cuda_memory *memory);
/* Search these words, such as a kernel's arguments, for addresses. */
int ah_cuda_pool_see(struct ah_cuda_memory *memory, const void *words, size_t bytes);
/* The bytes of a block that was seen and has been given back since; 0 when all are there. */
size_t ah_cuda_pool_lost(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool);
/* Close a pool: its memory is free for all allocations from now on, blocks in use once they are freed. */
void ah_cuda_pool_close(struct ah_cuda_memory *memory, struct ah_cuda_pool *pool);

/* The counts at this moment. */
void ah_cuda_memory_stats(struct ah_cuda_memory *memory, struct ah_memory_stats *stats);
/* Set the peak to the present use. */
void ah_cuda_memory_reset_peak(struct ah_cuda_memory *memory);
/* Return whole free segments to the driver. */
void ah_cuda_memory_trim(struct ah_cuda_memory *memory);
