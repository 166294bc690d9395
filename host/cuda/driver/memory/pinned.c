/* The pool is one array of blocks that only grows. A free block whose event has been reached is preferred; when none
 * fits and the pool has reached its limit, the first block that fits is waited for. */
#include "cuda/driver/memory/pinned.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory/array.h"

enum { LEAST = 1 << 16 };
#define STEP ((size_t)4 << 20)
#define LIMIT ((size_t)256 << 20)

struct ah_cuda_pinned {
    struct ah_cuda_device *cuda;
    struct ah_cuda_pinned_block **at;
    size_t count, room, bytes;
    pthread_mutex_t lock; /* of the array, and of let_go */
};

static bool is_free(struct ah_cuda_pinned_block *block)
{
    if (block->flying && ah_cuda.event_query(block->event) == CUDA_SUCCESS)
        block->flying = false;
    return !block->busy && !block->flying;
}

/* Record events for released blocks, which the device uses until the queued copies are made. */
static int mark_let_go(struct ah_cuda_pinned *pinned)
{
    int status = 0;
    AH_LOCK_SCOPE(&pinned->lock);
    for (size_t i = 0; status == 0 && i < pinned->count; i++) {
        struct ah_cuda_pinned_block *block = pinned->at[i];
        if (!block->let_go)
            continue;
        status = ah_cuda_pinned_give(pinned, block, pinned->cuda->copy);
        block->let_go = status < 0;
    }
    return status;
}

/* The smallest block that fits and is free or, with `wait`, will be. */
static struct ah_cuda_pinned_block *pinned_find(struct ah_cuda_pinned *pinned, size_t bytes, bool wait)
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

static int pinned_add(struct ah_cuda_pinned *pinned, size_t bytes, struct ah_cuda_pinned_block **out)
{
    pthread_mutex_lock(&pinned->lock);
    int grown = ah_grow(&pinned->at, pinned->count + 1, &pinned->room, sizeof pinned->at[0]);
    pthread_mutex_unlock(&pinned->lock);
    AH_TRY(grown);
    struct ah_cuda_pinned_block *block = calloc(1, sizeof *block);
    AH_TRY_MEMORY(block, "out of memory");
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
    while (size < bytes && size < STEP)
        size *= 2;
    size = size < bytes ? (bytes + STEP - 1) / STEP * STEP : size;
    AH_TRY(mark_let_go(pinned));
    *out = pinned_find(pinned, size, false);
    if (!*out && pinned->bytes + size > LIMIT)
        *out = pinned_find(pinned, size, true);
    if (!*out)
        AH_TRY(pinned_add(pinned, size, out));
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

int ah_cuda_pinned_hold(struct ah_cuda_pinned *pinned, size_t bytes, void **out)
{
    struct ah_cuda_pinned_block *block;
    AH_TRY(ah_cuda_pinned_take(pinned, bytes, &block));
    *out = block->at;
    return 0;
}

void ah_cuda_pinned_let_go(struct ah_cuda_pinned *pinned, const void *at)
{
    AH_LOCK_SCOPE(&pinned->lock);
    for (size_t i = 0; i < pinned->count; i++)
        if (pinned->at[i]->at == at)
            pinned->at[i]->let_go = true;
}

size_t ah_cuda_pinned_bytes(const struct ah_cuda_pinned *pinned)
{
    return pinned->bytes;
}

static void pinned_drop(struct ah_cuda_pinned *pinned, struct ah_cuda_pinned_block *block)
{
    ah_cuda.event_destroy(block->event);
    ah_cuda.pinned_free(block->at);
    pinned->bytes -= block->bytes;
    free(block);
}

void ah_cuda_pinned_trim(struct ah_cuda_pinned *pinned)
{
    size_t kept = 0;
    if (mark_let_go(pinned) < 0)
        return;
    AH_LOCK_SCOPE(&pinned->lock);
    for (size_t i = 0; i < pinned->count; i++) {
        struct ah_cuda_pinned_block *block = pinned->at[i];
        if (block->flying)
            ah_cuda.event_synchronise(block->event);
        if (is_free(block))
            pinned_drop(pinned, block);
        else
            pinned->at[kept++] = block;
    }
    pinned->count = kept;
}

int ah_cuda_pinned_open(struct ah_cuda_pinned **out, struct ah_cuda_device *cuda)
{
    struct ah_cuda_pinned *pinned = calloc(1, sizeof *pinned);
    AH_TRY_MEMORY(pinned, "out of memory");
    pinned->cuda = cuda;
    pthread_mutex_init(&pinned->lock, NULL);
    *out = pinned;
    return 0;
}

void ah_cuda_pinned_close(struct ah_cuda_pinned *pinned)
{
    if (!pinned)
        return;
    for (size_t i = 0; i < pinned->count; i++)
        pinned_drop(pinned, pinned->at[i]);
    pthread_mutex_destroy(&pinned->lock);
    free(pinned->at);
    free(pinned);
}
