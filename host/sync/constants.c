/* The tensors one after the other in one arena, which their storages hold. */
#include "sync/constants.h"

#include <stdlib.h>

#include "sync/common.h"

enum { ALIGNMENT = 64 };

static size_t constants_room(const struct ah_tensor *tensor)
{
    return (ah_tensor_bytes(tensor) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Return a number of the sizes in their order (FNV-1a). */
static int64_t constants_layout(struct ah_tensor **tensors, int count)
{
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < count; i++)
        hash = (hash ^ (uint64_t)ah_tensor_bytes(tensors[i])) * 1099511628211u;
    return (int64_t)(hash ^ (uint64_t)count);
}

static int constants_compare(struct ah_tensor **tensors, int count, struct ah_group *group, const char *where)
{
    int64_t own = constants_layout(tensors, count), *all = malloc((size_t)ah_group_size(group) * sizeof own);
    AH_TRY_MEMORY(all, "prepare: out of memory for a number of each rank");
    struct ah_collective call = ah_collective_all_gather(all, &own, 1, AH_I64);
    call.purpose = AH_FOR_PREPARE;
    call.where = where;
    int status = ah_group_run(group, call);
    for (int r = 0; status == 0 && r < ah_group_size(group); r++)
        if (all[r] != own)
            status = ah_fail(AH_EMISMATCH, "prepare: the quantised weights of rank %d have other sizes than those of "
                             "rank %d: load the same model on all ranks", r, ah_group_rank(group));
    free(all);
    return status;
}

static int constants_fill(struct ah_common *common, struct ah_tensor **tensors, int count, const char *where)
{
    struct ah_arena *arena = ah_common_arena(common);
    size_t at = 0;
    for (int i = 0; i < count && ah_common_brings(common); at += constants_room(tensors[i++]))
        AH_TRY(ah_copy_dense(arena->memory + at, &ah_cpu, tensors[i]));
    AH_TRY(ah_common_fill(common, where));
    at = 0;
    for (int i = 0; i < count; at += constants_room(tensors[i++]))
        ah_arena_place(arena, at, tensors[i]);
    return 0;
}

int ah_constants_share(struct ah_tensor **tensors, int count, struct ah_group *group, const char *where, bool *shared)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += constants_room(tensors[i]);
    *shared = false;
    AH_TRY(constants_compare(tensors, count, group, where));
    if (bytes == 0)
        return 0;
    struct ah_common *common;
    int status = ah_common_new(&common, group, bytes, where);
    if (status == AH_ENOTIMPL)
        return 0;
    AH_TRY(status);
    status = constants_fill(common, tensors, count, where);
    ah_common_free(common);
    *shared = status == 0;
    return status;
}
