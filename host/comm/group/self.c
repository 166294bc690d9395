/* The group of one process: every collective is a copy at most, and memory is plain memory. */
#include <stdlib.h>
#include <string.h>

#include "comm/control/combine.h"
#include "comm/group/backend.h"

static int self_run(struct ah_group *group, const struct ah_collective *call)
{
    size_t bytes = (size_t)ah_collective_part(call, 1, 0, 0).count * ah_dtype_size(call->dtype);
    if (ah_collective_reduces(call) && call->reduce == AH_REDUCE_MEAN && call->weight != 1)
        ah_combine(call->dtype, call->reduce, (void *const *)&call->out, 1, (const void *const *)&call->in, 1,
                   call->count, call->weight);
    else if (call->out != call->in && bytes)
        memmove(call->out, call->in, bytes);
    return 0;
}

static int self_alloc(struct ah_group *group, size_t bytes, void **out)
{
    size_t rounded = (bytes + 63) / 64 * 64 + (bytes ? 0 : 64);
    void *memory = bytes <= SIZE_MAX / 2 ? aligned_alloc(64, rounded) : NULL;
    if (!memory)
        return ah_fail(AH_ENOMEM, "out of memory: %zu bytes of a group's memory", bytes);
    *out = memset(memory, 0, rounded);
    return 0;
}

static void self_free(struct ah_group *group, void *memory, size_t bytes)
{
    free(memory);
}

const struct ah_backend ah_self_backend = {
    .name = "self",
    .group_bytes = sizeof(struct ah_group),
    .work_bytes = sizeof(struct ah_work),
    .message_bytes = sizeof(struct ah_message_request),
    .run = self_run,
    .alloc = self_alloc,
    .free = self_free,
};
