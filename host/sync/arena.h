/* Memory that many storages point into: a prepared model's parameters, its gradients.
 *
 * Counted; freed with its last holder, so a storage in it may outlive the model. Allocated by the device's allocator,
 * or by a group when its ranks are to access it or to share it; the group then lives as long as the arena. */
#pragma once

#include "base/status/status.h"
#include "comm/group/group.h"
#include "tensor/tensor.h"

struct ah_arena {
    atomic_int refs;
    char *memory; /* the device's address, 64-byte aligned, cleared at the start */
    size_t bytes;
    struct ah_device *device;
    struct ah_group *group; /* NULL: the device's own memory */
    bool common;            /* the same memory on every rank of the group that is on this host */
    bool contended;         /* and there are several */
    /* Of memory that is absent at times: provide that of a storage; NULL: it is present. `beside` lives as long. */
    int (*fetch)(struct ah_arena *arena, struct ah_storage *storage);
    void *context;
    int bucket;
    struct ah_arena *beside;
};

/* `group` NULL, or one whose memory the device can use (the CPU's). */
int ah_arena_new(struct ah_arena **out, size_t bytes, struct ah_device *device, struct ah_group *group);
/* One without memory (NULL) until ah_arena_fill, whose memory is undefined, and after ah_arena_empty. */
int ah_arena_absent(struct ah_arena **out, size_t bytes, struct ah_device *device);
/* Storages of the arena that are marked absent get their data by `fetch`. */
void ah_arena_set_fetch(struct ah_arena *arena, int (*fetch)(struct ah_arena *arena, struct ah_storage *storage),
                        void *context);
int ah_arena_fill(struct ah_arena *arena);
void ah_arena_empty(struct ah_arena *arena);
/* One for all ranks. A collective; AH_ENOTIMPL where the group has no such memory. */
int ah_arena_common(struct ah_arena **out, size_t bytes, struct ah_group *group, const char *where);
void ah_arena_release(struct ah_arena *arena); /* NULL is ignored */
struct ah_arena *ah_arena_retain(struct ah_arena *arena);
/* Abandon a work on an arena's memory, which stays until the work has completed. */
void ah_arena_abandon(struct ah_arena *arena, struct ah_work *work);

/* A tensor on the arena's memory at `offset`, holding the arena. */
int ah_arena_tensor(struct ah_tensor **out, struct ah_arena *arena, size_t offset, const int64_t *size, int ndim,
                    enum ah_dtype dtype);

/* Copy a tensor's values, in row-major order, to memory of a device. */
int ah_copy_dense(void *to, struct ah_device *device, struct ah_tensor *tensor);

/* Move a tensor's storage with its values to `offset` of the arena: handles, views of the whole and optimizers that
 * hold the tensor stay valid. The tensor must be contiguous, or the only one on its storage, and becomes contiguous. */
int ah_arena_adopt(struct ah_arena *arena, size_t offset, struct ah_tensor *tensor);
/* The same without copying the values: the tensor gets those of the arena. */
void ah_arena_place(struct ah_arena *arena, size_t offset, struct ah_tensor *tensor);
