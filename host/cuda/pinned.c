/* The pool is one array of blocks that only grows. A free block whose event has been reached comes first; when none
 * fits and the pool has reached its limit, the first block that fits is waited for. */
#include "cuda/pinned.h"

#include <stdlib.h>

#include "base/array.h"

enum { LEAST = 1 << 16 };
#define LIMIT ((size_t)256 << 20)

struct ah_cuda_pinned {
    struct ah_cuda_device *cuda;
    struct ah_cuda_pinned_block **at;
    size_t count, room, bytes;
};

static bool is_free(struct ah_cuda_pinned_block *block)
{
    if (block->flying && ah_cuda.event_query(block->event) == CUDA_SUCCESS)
        block->flying = false;
    return !block->busy && !block->flying;
}

/* The smallest block that fits and is free or, with `wait`, will be. */
static struct ah_cuda_pinned_block *find(struct ah_cuda_pinned *pinned, size_t bytes, bool wait)
{
    struct ah_cuda_pinned_block *best = NULL;
    for (size_t i = 0; i < pinned->count; i++) {
        struct ah_cuda_pinned_block *block = pinned->at[i];
        bool better = block->bytes >= bytes && (!best || block->bytes < best->bytes);
        if (better && (is_free(block) || (wait && !block->busy)))
            best = block;
    }
    return best;
}

static int add(struct ah_cuda_pinned *pinned, size_t bytes, struct ah_cuda_pinned_block **out)
{
    AH_TRY(ah_grow(&pinned->at, pinned->count + 1, &pinned->room, sizeof pinned->at[0]));
    struct ah_cuda_pinned_block *block = calloc(1, sizeof *block);
    if (!block)
        return ah_fail(AH_ENOMEM, "out of memory");
    const char *name = pinned->cuda->device->name;
    int status = ah_cuda_check(ah_cuda.pinned_alloc(&block->at, bytes), "%s: %zu bytes of pinned memory", name, bytes);
    if (status == 0) {
        status = ah_cuda_check(ah_cuda.event_create(&block->event, CU_EVENT_DISABLE_TIMING), "%s: an event", name);
        if (status < 0)
            ah_cuda.pinned_free(block->at);
    }
    if (status < 0) {
        free(block);
        return status;
    }
    block->bytes = bytes;
    pinned->bytes += bytes;
    *out = pinned->at[pinned->count++] = block;
    return 0;
}

int ah_cuda_pinned_take(struct ah_cuda_pinned *pinned, size_t bytes, struct ah_cuda_pinned_block **out)
{
    size_t size = LEAST;
    while (size < bytes)
        size *= 2;
    *out = find(pinned, size, false);
    if (!*out && pinned->bytes + size > LIMIT)
        *out = find(pinned, size, true);
    if (!*out)
        AH_TRY(add(pinned, size, out));
    if ((*out)->flying)
        AH_TRY(ah_cuda_check(ah_cuda.event_synchronise((*out)->event), "%s: a copy", pinned->cuda->device->name));
    (*out)->flying = false;
    (*out)->busy = true;
    return 0;
}

int ah_cuda_pinned_give(struct ah_cuda_pinned *pinned, struct ah_cuda_pinned_block *block, CUstream stream)
{
    block->busy = false;
    block->flying = true;
    return ah_cuda_check(ah_cuda.event_record(block->event, stream), "%s: an event", pinned->cuda->device->name);
}

int ah_cuda_pinned_open(struct ah_cuda_pinned **out, struct ah_cuda_device *cuda)
{
    struct ah_cuda_pinned *pinned = calloc(1, sizeof *pinned);
    if (!pinned)
        return ah_fail(AH_ENOMEM, "out of memory");
    pinned->cuda = cuda;
    *out = pinned;
    return 0;
}

void ah_cuda_pinned_close(struct ah_cuda_pinned *pinned)
{
    for (size_t i = 0; pinned && i < pinned->count; i++) {
        ah_cuda.event_destroy(pinned->at[i]->event);
        ah_cuda.pinned_free(pinned->at[i]->at);
        free(pinned->at[i]);
    }
    if (pinned)
        free(pinned->at);
    free(pinned);
}
