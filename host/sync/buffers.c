/* The bytes travel as integers to which all ranks but one contribute zeros: the sum is its bytes. Each buffer begins
 * at a multiple of 8 in memory that the group reaches, so that nothing is copied twice. */
#include "sync/buffers.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "sync/arena.h"

struct ah_buffers {
    struct ah_group *group;
    struct ah_tensor **tensor;
    int count;
    struct ah_arena *packed; /* NULL: not yet */
    size_t words;
    struct ah_work *work;
    int from; /* the rank whose values they are */
};

static size_t words_of(const struct ah_tensor *tensor)
{
    return (ah_tensor_bytes(tensor) + 7) / 8;
}

int ah_buffers_new(struct ah_buffers **out, struct ah_group *group, struct ah_tensor **list, int count)
{
    struct ah_buffers *b = calloc(1, sizeof *b);
    if (b)
        b->tensor = calloc((size_t)count + 1, sizeof *b->tensor);
    if (!b || !b->tensor) {
        free(b);
        return ah_fail(AH_ENOMEM, "prepare: out of memory");
    }
    b->group = ah_group_retain(group);
    for (; b->count < count; b->count++) {
        b->tensor[b->count] = ah_tensor_retain(list[b->count]);
        b->words += ah_group_size(group) > 1 ? words_of(list[b->count]) : 0;
    }
    *out = b;
    return 0;
}

int ah_buffers_replace(struct ah_buffers *b, int index, struct ah_tensor *tensor)
{
    if (index < 0 || index >= b->count)
        return ah_fail(AH_EINVAL, "backward: buffer %d is none of %d", index, b->count);
    struct ah_tensor *before = b->tensor[index];
    if (tensor->dtype != before->dtype || !ah_same_shape(tensor, before))
        return ah_fail(AH_EINVAL, "backward: buffer %d was %s %s at prepare, got %s %s", index,
                       ah_dtype_name(before->dtype), ah_shape(before), ah_dtype_name(tensor->dtype), ah_shape(tensor));
    b->tensor[index] = ah_tensor_retain(tensor);
    ah_tensor_release(before);
    return 0;
}

void ah_buffers_forget(struct ah_buffers *b)
{
    if (b && b->work)
        ah_arena_abandon(b->packed, b->work);
    if (b)
        b->work = NULL;
}

void ah_buffers_free(struct ah_buffers *b)
{
    if (!b)
        return;
    ah_buffers_forget(b);
    ah_arena_release(b->packed);
    for (int i = 0; i < b->count; i++)
        ah_tensor_release(b->tensor[i]);
    ah_group_close(b->group);
    free(b->tensor);
    free(b);
}

/* Allocate the packed bytes: on the device of the buffers, if the group can access it, else in the group's memory. */
static int make_room(struct ah_buffers *b, const char *where)
{
    struct ah_device *device = b->tensor[0]->storage->device;
    size_t bytes = b->words * sizeof(int64_t);
    bool reached = false;
    if (device != &ah_cpu)
        AH_TRY(ah_group_reach(b->group, device, device->type->device_comm, where, &reached));
    if (b->packed && b->packed->device == (reached ? device : &ah_cpu))
        return 0;
    ah_arena_release(b->packed);
    b->packed = NULL;
    return reached ? ah_arena_new(&b->packed, bytes, device, NULL) : ah_arena_new(&b->packed, bytes, &ah_cpu, b->group);
}

static int buffers_unpack(struct ah_tensor *tensor, const void *from, struct ah_device *device)
{
    if (ah_tensor_is_contiguous(tensor)) {
        AH_TRY(ah_tensor_row_major(tensor));
        return ah_device_copy(ah_tensor_data(tensor), tensor->storage->device, from, device, ah_tensor_bytes(tensor));
    }
    AH_OWNED struct ah_tensor *dense = NULL, *same = NULL;
    AH_TRY(ah_tensor_empty_like(&dense, tensor));
    AH_TRY(ah_device_copy(ah_tensor_data(dense), dense->storage->device, from, device, ah_tensor_bytes(dense)));
    return ah_op1(AH_OP_copy_, &same, AH_T(tensor), AH_T(dense));
}

int ah_buffers_send(struct ah_buffers *b, int from, enum ah_purpose purpose, const char *where)
{
    b->from = from;
    if (!b->words)
        return 0;
    AH_GRAD_SCOPE(false);
    AH_TRY(make_room(b, where));
    struct ah_device *device = b->packed->device;
    char *at = b->packed->memory;
    AH_TRY(device->type->fill(device, at, 0, b->words * sizeof(int64_t)));
    for (int i = 0; i < b->count && ah_group_rank(b->group) == from; i++) {
        AH_TRY(ah_copy_dense(at, device, b->tensor[i]));
        at += words_of(b->tensor[i]) * sizeof(int64_t);
    }
    struct ah_collective call = ah_collective_all_reduce(b->packed->memory, (int64_t)b->words, AH_I64, AH_REDUCE_SUM);
    call.device = device == &ah_cpu ? NULL : device;
    call.ahead = purpose == AH_FOR_BACKWARD;
    call.purpose = purpose;
    call.where = where;
    return ah_group_start(b->group, call, &b->work);
}

int ah_buffers_receive(struct ah_buffers *b)
{
    if (!b->work)
        return 0;
    struct ah_work *work = b->work;
    b->work = NULL;
    AH_TRY(ah_work_wait(work));
    AH_GRAD_SCOPE(false);
    const char *at = b->packed->memory;
    for (int i = 0; i < b->count && ah_group_rank(b->group) != b->from; i++) {
        AH_TRY(buffers_unpack(b->tensor[i], at, b->packed->device));
        at += words_of(b->tensor[i]) * sizeof(int64_t);
    }
    return 0;
}
