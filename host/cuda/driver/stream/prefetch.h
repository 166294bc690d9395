/* Batches on their way to a device: the functions of tensor/device.h that pin memory of the host, and copy from there
 * on the copy stream into its own blocks.
 *
 * Such a block is filled on the copy stream and used on the compute stream, so both have to be waited for. The compute
 * stream waits for the copies when they are joined. A block that was dropped is marked in the compute stream at the
 * next prefetch, and is filled again when that event is reached, which the host polls: so no copy waits for
 * kernels in the queue, and when `FLYING` blocks that would do are on their way, the host waits for the oldest. */
#pragma once

#include "cuda/driver/api/device.h"

struct ah_cuda_prefetch;

extern const struct ah_prefetch_functions ah_cuda_prefetch_functions;

int ah_cuda_prefetch_open(struct ah_cuda_prefetch **out, struct ah_cuda_device *cuda);
void ah_cuda_prefetch_close(struct ah_cuda_prefetch *prefetch); /* all blocks have been dropped; NULL is ignored */

/* Return unused blocks to the allocator. */
void ah_cuda_prefetch_trim(struct ah_cuda_prefetch *prefetch);
