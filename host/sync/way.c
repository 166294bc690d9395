/* The path of device memory to the other ranks: by the group's device communicator, which accesses it in place, or
 * through a copy in the group's own memory, which is as long as an arena and holds the same spans. CPU memory is in the
 * group's memory anyway. */
#include "sync/state.h"

int ah_reducer_find_way(struct ah_reducer *r)
{
    struct ah_device *device = r->device;
    bool reached;
    if (r->way_known || device == &ah_cpu || !ah_group_communicates(r->group))
        return 0;
    AH_TRY(ah_group_reach(r->group, device, device->type->device_comm, r->where, &reached));
    r->device_comm = reached ? device : NULL;
    if (!reached && !r->staged)
        AH_TRY(ah_arena_new(&r->staged, r->layout.bytes, &ah_cpu, r->group));
    r->way_known = true;
    return 0;
}

static bool is_staged(const struct ah_reducer *r, const struct ah_arena *arena)
{
    return arena->device != &ah_cpu && !r->device_comm;
}

void *ah_reducer_reachable(struct ah_reducer *r, struct ah_arena *arena, size_t offset)
{
    return (is_staged(r, arena) ? r->staged : arena)->memory + offset;
}

int ah_reducer_stage(struct ah_reducer *r, struct ah_arena *arena, size_t offset, size_t bytes)
{
    if (!is_staged(r, arena))
        return 0;
    return ah_device_copy(r->staged->memory + offset, &ah_cpu, arena->memory + offset, arena->device, bytes);
}

int ah_reducer_unstage(struct ah_reducer *r, struct ah_arena *arena, size_t offset, size_t bytes)
{
    if (!is_staged(r, arena))
        return 0;
    return ah_device_copy(arena->memory + offset, arena->device, r->staged->memory + offset, &ah_cpu, bytes);
}

void ah_reducer_abandon(struct ah_reducer *r, int b)
{
    struct ah_arena *own = r->split_grads ? ah_split_whole(r->split_grads, b) : r->grads;
    ah_arena_abandon(r->staged && !r->device_comm ? r->staged : own, r->bucket[b].work);
    r->bucket[b].work = NULL;
}
