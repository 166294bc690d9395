/* Storages in an arena have it as their owner and release it in place of their data. */
#include "sync/arena.h"

#include <stdlib.h>

#include "autograd/graph/graph.h"

void ah_arena_empty(struct ah_arena *arena)
{
    if (arena->memory)
        arena->device->type->release(arena->device, arena->memory, arena->bytes);
    arena->memory = NULL;
}

void ah_arena_release(struct ah_arena *arena)
{
    if (!arena || atomic_fetch_sub(&arena->refs, 1) != 1)
        return;
    if (arena->group) {
        if (arena->common)
            ah_group_unshare(arena->group, arena->memory, arena->bytes);
        else
            ah_group_free(arena->group, arena->memory, arena->bytes);
        ah_group_close(arena->group);
    } else {
        ah_arena_empty(arena);
    }
    ah_arena_release(arena->beside);
    free(arena);
}

struct ah_arena *ah_arena_retain(struct ah_arena *arena)
{
    atomic_fetch_add(&arena->refs, 1);
    return arena;
}

static void let_go(void *arena)
{
    ah_arena_release(arena);
}

void ah_arena_abandon(struct ah_arena *arena, struct ah_work *work)
{
    if (arena->group)
        ah_work_abandon(work);
    else
        ah_work_abandon_held(work, let_go, ah_arena_retain(arena));
}

int ah_arena_new(struct ah_arena **out, size_t bytes, struct ah_device *device, struct ah_group *group)
{
    void *memory;
    struct ah_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return ah_fail(AH_ENOMEM, "an arena of %zu bytes: out of memory", bytes);
    int status = group ? ah_group_alloc(group, bytes, &memory) : ah_device_allocate(device, bytes, &memory);
    if (status < 0) {
        free(arena);
        return status;
    }
    *arena = (struct ah_arena){.memory = memory, .bytes = bytes, .device = device};
    atomic_init(&arena->refs, 1);
    if (group)
        arena->group = ah_group_retain(group);
    else if ((status = device->type->fill(device, memory, 0, bytes)) < 0)
        ah_arena_release(arena);
    *out = arena;
    return status;
}

static int fetch_storage(struct ah_storage *storage)
{
    struct ah_arena *arena = storage->owner;
    return arena->fetch(arena, storage);
}

int ah_arena_absent(struct ah_arena **out, size_t bytes, struct ah_device *device)
{
    struct ah_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return ah_fail(AH_ENOMEM, "an arena of %zu bytes: out of memory", bytes);
    *arena = (struct ah_arena){.bytes = bytes, .device = device};
    atomic_init(&arena->refs, 1);
    *out = arena;
    return 0;
}

void ah_arena_set_fetch(struct ah_arena *arena, int (*fetch)(struct ah_arena *arena, struct ah_storage *storage),
                        void *context)
{
    arena->fetch = fetch;
    arena->context = context;
    ah_storage_fetch = fetch_storage;
}

int ah_arena_fill(struct ah_arena *arena)
{
    void *memory;
    AH_TRY(ah_device_allocate(arena->device, arena->bytes, &memory));
    arena->memory = memory;
    return 0;
}

static int ranks_here(struct ah_group *group)
{
    int count = 0, host = ah_group_host(group, ah_group_rank(group));
    for (int r = 0; r < ah_group_size(group); r++)
        count += ah_group_host(group, r) == host;
    return count;
}

int ah_arena_common(struct ah_arena **out, size_t bytes, struct ah_group *group, const char *where)
{
    void *memory;
    struct ah_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return ah_fail(AH_ENOMEM, "an arena of %zu bytes: out of memory", bytes);
    int status = ah_group_share(group, bytes, where, &memory);
    if (status < 0) {
        free(arena);
        return status;
    }
    *arena = (struct ah_arena){.memory = memory, .bytes = bytes, .device = &ah_cpu, .group = ah_group_retain(group),
                               .common = true, .contended = ranks_here(group) > 1};
    atomic_init(&arena->refs, 1);
    *out = arena;
    return 0;
}

static void release_member(struct ah_storage *storage)
{
    ah_arena_release(storage->owner);
}

int ah_arena_tensor(struct ah_tensor **out, struct ah_arena *arena, size_t offset, const int64_t *size, int ndim,
                    enum ah_dtype dtype)
{
    char *memory = arena->memory ? arena->memory + offset : NULL;
    AH_TRY(ah_tensor_from_memory(out, memory, size, ndim, dtype, arena->device, release_member, arena));
    (*out)->storage->absent = !memory;
    ah_arena_retain(arena);
    return 0;
}

int ah_copy_dense(void *to, struct ah_device *device, struct ah_tensor *tensor)
{
    AH_OWNED struct ah_tensor *dense = NULL;
    AH_GRAD_SCOPE(false);
    AH_TRY(ah_tensor_row_major(tensor));
    AH_TRY(ah_op1(AH_OP_contiguous, &dense, AH_T(tensor)));
    return ah_device_copy(to, device, ah_tensor_data(dense), dense->storage->device, ah_tensor_bytes(dense));
}

int ah_arena_adopt(struct ah_arena *arena, size_t offset, struct ah_tensor *tensor)
{
    AH_TRY(ah_copy_dense(arena->memory + offset, arena->device, tensor));
    ah_arena_place(arena, offset, tensor);
    return 0;
}

void ah_arena_place(struct ah_arena *arena, size_t offset, struct ah_tensor *tensor)
{
    struct ah_storage *storage = tensor->storage;
    size_t bytes = ah_tensor_bytes(tensor);
    if (storage->release)
        storage->release(storage);
    else
        storage->device->type->release(storage->device, storage->data, storage->nbytes);
    ah_arena_retain(arena);
    storage->data = arena->memory + offset;
    storage->nbytes = bytes;
    storage->device = arena->device;
    storage->release = release_member;
    storage->owner = arena;
    storage->channels_last = false;
    storage->contended = arena->contended;
    tensor->offset = 0;
    ah_contiguous_strides(tensor->size, tensor->ndim, tensor->stride);
}
