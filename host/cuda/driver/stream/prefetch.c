/* A list of blocks with an event each. Invariant: a block is dropped without a call of the driver, since that may
 * happen on any thread and in the middle of a capture; only the Lua thread fetches and joins. */
#include "cuda/driver/stream/prefetch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/memory/pinned.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/copy.h"

enum { FLYING = 3, KEPT = 64 };
#define KEPT_BYTES ((size_t)256 << 20)

enum state {
    FREE,
    HELD,    /* by a tensor */
    DROPPED, /* not marked yet */
    WAITED,  /* its event, in the compute stream, is not known to be reached */
};

struct slot {
    void *at;
    size_t bytes;
    CUevent done;
    enum state state;
    uint64_t turn; /* when it was marked */
};

struct ah_cuda_prefetch {
    struct ah_cuda_device *cuda;
    pthread_mutex_t lock; /* of the slots' states, and of the list */
    struct slot **slot;
    size_t count, room;
    uint64_t turns;
    CUevent order; /* from one stream to the other */
};

/* Make work queued on `after` from now on wait for the work queued on `first` so far. */
static int prefetch_order(struct ah_cuda_prefetch *prefetch, CUstream first, CUstream after)
{
    const char *name = prefetch->cuda->device->name;
    AH_TRY(ah_cuda_check(ah_cuda.event_record(prefetch->order, first), "%s: an event", name));
    return ah_cuda_check(ah_cuda.stream_wait(after, prefetch->order, 0), "%s: waiting for a copy", name);
}

/* Record events for the blocks dropped since the last call. */
static int record_dropped(struct ah_cuda_prefetch *prefetch)
{
    int status = 0;
    AH_LOCK_SCOPE(&prefetch->lock);
    for (size_t i = 0; status == 0 && i < prefetch->count; i++) {
        struct slot *slot = prefetch->slot[i];
        if (slot->state != DROPPED)
            continue;
        status = ah_cuda_check(ah_cuda.event_record(slot->done, prefetch->cuda->compute), "%s: an event",
                               prefetch->cuda->device->name);
        slot->state = status == 0 ? WAITED : DROPPED;
        slot->turn = ++prefetch->turns;
    }
    return status;
}

static bool is_free(struct slot *slot)
{
    if (slot->state == WAITED && ah_cuda.event_query(slot->done) == CUDA_SUCCESS)
        slot->state = FREE;
    return slot->state == FREE;
}

/* Not so large that another batch misses it. */
static bool prefetch_fits(const struct slot *slot, size_t bytes)
{
    return slot->bytes >= bytes && slot->bytes / 2 <= bytes;
}

/* A free block that fits; else, when enough of them are waited for, the oldest of those; else NULL. */
static struct slot *prefetch_find(struct ah_cuda_prefetch *prefetch, size_t bytes)
{
    struct slot *oldest = NULL;
    int waited = 0;
    for (size_t i = 0; i < prefetch->count; i++) {
        struct slot *slot = prefetch->slot[i];
        if (!prefetch_fits(slot, bytes))
            continue;
        if (is_free(slot))
            return slot;
        if (slot->state != WAITED)
            continue;
        waited++;
        if (!oldest || slot->turn < oldest->turn)
            oldest = slot;
    }
    return waited >= FLYING ? oldest : NULL;
}

/* Let go of a slot that is free, or that was never in the list. The allocator knows that the copy stream used it. */
static void prefetch_forget(struct ah_cuda_prefetch *prefetch, struct slot *slot)
{
    if (slot->done)
        ah_cuda.event_destroy(slot->done);
    if (slot->at)
        ah_cuda_memory_give(prefetch->cuda->memory, slot->at);
    free(slot);
}

/* Free unused blocks, the last ones first, while there are more than `bytes` or `count` of them. */
static void prefetch_shrink(struct ah_cuda_prefetch *prefetch, size_t count, size_t bytes)
{
    size_t free_count = 0, free_bytes = 0, kept = 0;
    for (size_t i = 0; i < prefetch->count; i++) {
        struct slot *slot = prefetch->slot[i];
        if (is_free(slot)) {
            free_count++;
            free_bytes += slot->bytes;
            if (free_count > count || free_bytes > bytes) {
                prefetch_forget(prefetch, slot);
                continue;
            }
        }
        prefetch->slot[kept++] = slot;
    }
    prefetch->count = kept;
}

/* A new block. Queued kernels may still use the previous contents of its memory. */
static int prefetch_add(struct ah_cuda_prefetch *prefetch, size_t bytes, struct slot **out)
{
    struct ah_cuda_device *cuda = prefetch->cuda;
    struct slot *slot = calloc(1, sizeof *slot);
    if (!slot || ah_grow(&prefetch->slot, prefetch->count + 1, &prefetch->room, sizeof prefetch->slot[0]) < 0) {
        free(slot);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    slot->bytes = bytes;
    int status = ah_cuda_memory_take_uncollected(cuda->memory, bytes, &slot->at); /* a release locks `lock` */
    if (status == 0)
        status = ah_cuda_memory_used_on(cuda->memory, slot->at, cuda->copy);
    if (status == 0)
        status = ah_cuda_check(ah_cuda.event_create(&slot->done, CU_EVENT_DISABLE_TIMING), "%s: an event",
                               cuda->device->name);
    if (status == 0)
        status = prefetch_order(prefetch, cuda->compute, cuda->copy);
    if (status < 0) {
        prefetch_forget(prefetch, slot);
        return status;
    }
    *out = prefetch->slot[prefetch->count++] = slot;
    return 0;
}

static int try_take(struct ah_cuda_prefetch *prefetch, size_t bytes, struct slot **out)
{
    int status = 0;
    pthread_mutex_lock(&prefetch->lock);
    struct slot *slot = prefetch_find(prefetch, bytes);
    if (slot && slot->state == WAITED)
        status = ah_cuda_check(ah_cuda.event_synchronise(slot->done), "%s: waiting for kernels",
                               prefetch->cuda->device->name);
    if (!slot) {
        prefetch_shrink(prefetch, KEPT, KEPT_BYTES);
        status = prefetch_add(prefetch, bytes, &slot);
        if (status == AH_ENOMEM) {
            prefetch_shrink(prefetch, 0, 0);
            status = prefetch_add(prefetch, bytes, &slot);
        }
    }
    if (status == 0)
        slot->state = HELD;
    pthread_mutex_unlock(&prefetch->lock);
    *out = slot;
    return status;
}

static int prefetch_take(struct ah_cuda_prefetch *prefetch, size_t bytes, struct slot **out)
{
    int status = try_take(prefetch, bytes, out);
    return status == AH_ENOMEM && ah_block_relieve() ? try_take(prefetch, bytes, out) : status;
}

static void prefetch_drop(struct ah_device *device, void *block)
{
    struct ah_cuda_prefetch *prefetch = ah_cuda_state(device)->prefetch;
    AH_LOCK_SCOPE(&prefetch->lock);
    for (size_t i = 0; i < prefetch->count; i++)
        if (prefetch->slot[i]->at == block)
            prefetch->slot[i]->state = DROPPED;
}

static int prefetch_fetch(struct ah_device *device, void **out, const void *from, size_t bytes, bool pinned)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    struct slot *slot;
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_refuse(cuda, "a batch of a loader", "iterate over the loader outside of the step"));
    AH_TRY(record_dropped(cuda->prefetch));
    AH_TRY(prefetch_take(cuda->prefetch, bytes, &slot));
    int status = 0;
    if (bytes && pinned)
        status = ah_cuda_check(ah_cuda.copy_to_device((CUdeviceptr)(uintptr_t)slot->at, from, bytes, cuda->copy),
                               "%s: copy of %zu bytes to the device", device->name, bytes);
    else if (bytes)
        status = ah_cuda_copy_staged(cuda, slot->at, from, bytes, cuda->copy);
    if (status < 0)
        prefetch_drop(device, slot->at);
    else
        *out = slot->at;
    return status;
}

static int prefetch_join(struct ah_device *device)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_refuse(cuda, "a batch of a loader", "iterate over the loader outside of the step"));
    AH_TRY(record_dropped(cuda->prefetch));
    return prefetch_order(cuda->prefetch, cuda->copy, cuda->compute);
}

static int prefetch_pin(struct ah_device *device, size_t bytes, void **out)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    AH_TRY(ah_cuda_enter(cuda));
    return ah_cuda_pinned_hold(cuda->pinned, bytes, out);
}

static void prefetch_unpin(struct ah_device *device, void *block)
{
    ah_cuda_pinned_let_go(ah_cuda_state(device)->pinned, block);
}

const struct ah_prefetch_functions ah_cuda_prefetch_functions = {
    .pin = prefetch_pin, .unpin = prefetch_unpin, .fetch = prefetch_fetch, .drop = prefetch_drop, .join = prefetch_join,
};

void ah_cuda_prefetch_trim(struct ah_cuda_prefetch *prefetch)
{
    if (ah_cuda_make_current(prefetch->cuda) < 0 || record_dropped(prefetch) < 0)
        return;
    AH_LOCK_SCOPE(&prefetch->lock);
    for (size_t i = 0; i < prefetch->count; i++)
        if (prefetch->slot[i]->state == WAITED)
            ah_cuda.event_synchronise(prefetch->slot[i]->done);
    prefetch_shrink(prefetch, 0, 0);
}

int ah_cuda_prefetch_open(struct ah_cuda_prefetch **out, struct ah_cuda_device *cuda)
{
    struct ah_cuda_prefetch *prefetch = calloc(1, sizeof *prefetch);
    AH_TRY_MEMORY(prefetch, "out of memory");
    prefetch->cuda = cuda;
    pthread_mutex_init(&prefetch->lock, NULL);
    *out = prefetch;
    return ah_cuda_check(ah_cuda.event_create(&prefetch->order, CU_EVENT_DISABLE_TIMING), "%s: an event",
                         cuda->device->name);
}

void ah_cuda_prefetch_close(struct ah_cuda_prefetch *prefetch)
{
    if (!prefetch)
        return;
    for (size_t i = 0; i < prefetch->count; i++)
        prefetch_forget(prefetch, prefetch->slot[i]);
    if (prefetch->order)
        ah_cuda.event_destroy(prefetch->order);
    pthread_mutex_destroy(&prefetch->lock);
    free(prefetch->slot);
    free(prefetch);
}
