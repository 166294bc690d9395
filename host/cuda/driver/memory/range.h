/* The large blocks of a device as one range of addresses, into which memory is mapped in pieces: PyTorch's expandable
 * segments. Neighbours that are free join, so varying lengths do not leave segments that fit no later request, and
 * memory is returned to the driver from anywhere in the range, not only where a whole segment is free. Addresses that
 * lost their memory are holes, separate blocks, which get memory again first.
 *
 * All but opening and closing under the allocator's lock.
 *
 * Circle: memory, range: the allocator requests more from the range, and the range adds free blocks to its lists. */
#pragma once

#include "cuda/driver/memory/memory_state.h"

struct ah_cuda_range;

/* Reserve the addresses; NULL, and no error, where the device or the driver has no such memory. */
int ah_cuda_range_open(struct ah_cuda_range **out, struct ah_cuda_device *cuda);
/* Return all memory to the driver; NULL is ignored. */
void ah_cuda_range_close(struct ah_cuda_range *range);

/* Is the block in the range? Not in a NULL. */
bool ah_cuda_range_has(const struct ah_cuda_range *range, const struct ah_cuda_block *block);
/* Can it grow? Not a NULL, nor once the driver has refused to map any. */
bool ah_cuda_range_grows(const struct ah_cuda_range *range);
/* Map pieces until a free block of `bytes` is among the allocator's. AH_ENOMEM when the driver has no more. */
int ah_cuda_range_grow(struct ah_cuda_memory *memory, size_t bytes);
/* Let a peer that has access to the device reach the memory, including later pieces: cuCtxEnablePeerAccess is for
 * cuMemAlloc's. */
void ah_cuda_range_share(struct ah_cuda_range *range, const struct ah_cuda_device *peer);
/* Return the memory of all free pieces to the driver; waits for the device if there are any. */
void ah_cuda_range_trim(struct ah_cuda_memory *memory);
