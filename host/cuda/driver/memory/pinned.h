/* Pinned host memory: blocks that the device copies from and to by itself while the host continues.
 *
 * Blocks are powers of two up to 4 MiB, then multiples of 4 MiB, and are kept for reuse, each with an event that marks
 * the end of the device's use; the driver's free, which waits for the whole device, is called on trim and at the end
 * only. Lua thread only, but for letting go. */
#pragma once

#include "cuda/driver/api/device.h"

struct ah_cuda_pinned_block {
    void *at;
    size_t bytes;
    CUevent event;
    bool busy;   /* handed out */
    bool flying; /* freed, its event not known to be reached */
    bool let_go; /* held until now; its event is set at the next allocation */
};

int ah_cuda_pinned_open(struct ah_cuda_pinned **out, struct ah_cuda_device *cuda);
void ah_cuda_pinned_close(struct ah_cuda_pinned *pinned);

/* A block of at least `bytes`, which neither host nor device uses. Waits for the device when many are under way. */
int ah_cuda_pinned_take(struct ah_cuda_pinned *pinned, size_t bytes, struct ah_cuda_pinned_block **out);

/* Free a block; work that is queued on `stream` so far may still use it. */
int ah_cuda_pinned_give(struct ah_cuda_pinned *pinned, struct ah_cuda_pinned_block *block, CUstream stream);

/* A block for a thread that fills it at an unknown time: it is held until it is let go, on any thread and without a
 * call of the driver. The device reads it on the copy stream only. */
int ah_cuda_pinned_hold(struct ah_cuda_pinned *pinned, size_t bytes, void **out);
void ah_cuda_pinned_let_go(struct ah_cuda_pinned *pinned, const void *at);

/* Bytes of all blocks. */
size_t ah_cuda_pinned_bytes(const struct ah_cuda_pinned *pinned);
/* Return free blocks to the driver. */
void ah_cuda_pinned_trim(struct ah_cuda_pinned *pinned);
