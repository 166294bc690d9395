/* The group of one process: every collective is a copy at most. */
#include <stdlib.h>
#include <string.h>

#include "comm/backend.h"
#include "comm/combine.h"

struct region {
    struct region *next;
    void *memory;
};

struct self_group {
    struct ah_group base;
    struct region *regions; /* of arena_alloc, freed at the end */
};

static int self_run(struct ah_group *group, const struct ah_collective *what)
{
    size_t bytes = (size_t)what->count * ah_dtype_size(what->dtype);
    bool reduces = what->kind == AH_ALL_REDUCE || what->kind == AH_ALL_REDUCE_START || what->kind == AH_REDUCE_SCATTER;
    if (reduces && what->reduce == AH_REDUCE_MEAN && group->weight != 1)
        ah_combine(what->dtype, what->reduce, (void *const *)&what->out, 1, (const void *const *)&what->in, 1,
                   what->count, group->weight);
    else if (what->out != what->in && bytes)
        memmove(what->out, what->in, bytes);
    return 0;
}

static int self_start(struct ah_group *group, const struct ah_collective *what, struct ah_work **out)
{
    struct ah_work *work = calloc(1, sizeof *work);
    if (!work)
        return ah_fail(AH_ENOMEM, "out of memory");
    work->group = group;
    work->what = *what;
    work->note = group->note;
    *out = work;
    return self_run(group, what);
}

static int self_test(struct ah_work *work, bool *done)
{
    *done = true;
    return 0;
}

static int self_wait(struct ah_work *work)
{
    return 0;
}

static void self_drop(struct ah_work *work)
{
    free(work);
}

static int self_arena_alloc(struct ah_group *group, size_t bytes, void **out)
{
    struct self_group *self = (struct self_group *)group;
    size_t rounded = (bytes + 63) / 64 * 64 + (bytes ? 0 : 64);
    struct region *region = malloc(sizeof *region);
    void *memory = aligned_alloc(64, rounded);
    if (!region || !memory) {
        free(region);
        free(memory);
        return ah_fail(AH_ENOMEM, "out of memory: an arena of %zu bytes", bytes);
    }
    memset(memory, 0, rounded);
    *region = (struct region){self->regions, memory};
    self->regions = region;
    *out = memory;
    return 0;
}

static void self_close(struct ah_group *group)
{
    struct self_group *self = (struct self_group *)group;
    while (self->regions) {
        struct region *next = self->regions->next;
        free(self->regions->memory);
        free(self->regions);
        self->regions = next;
    }
    free(self);
}

static const struct ah_group_ops self_ops = {
    .name = "self",
    .run = self_run,
    .start = self_start,
    .test = self_test,
    .wait = self_wait,
    .drop = self_drop,
    .arena_alloc = self_arena_alloc,
    .close = self_close,
};

int ah_self_open(struct ah_group **out)
{
    struct self_group *self = calloc(1, sizeof *self);
    if (!self)
        return ah_fail(AH_ENOMEM, "out of memory");
    self->base.ops = &self_ops;
    self->base.size = 1;
    self->base.ndim = -1;
    self->base.weight = 1;
    *out = &self->base;
    return 0;
}
