/* Making and closing a reducer: arenas, slots, rank 0's values to all. The backward is in average.c. */
#include "sync/reducer.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "sync/agree.h"
#include "sync/shard.h"
#include "sync/state.h"
#include "tensor/capture.h"

static int check_movable(struct ah_tensor *tensor, int index)
{
    if (!ah_dtype_is_float(tensor->dtype))
        return ah_fail(AH_EINVAL, "prepare: parameter %d is %s, expected a floating dtype", index,
                       ah_dtype_name(tensor->dtype));
    AH_TRY(ah_tensor_row_major(tensor));
    bool whole = tensor->offset == 0 && ah_tensor_is_contiguous(tensor) &&
                 tensor->storage->nbytes == ah_tensor_bytes(tensor);
    /* A storage without other references may be packed; a view cannot be moved without its base. */
    if (!whole && atomic_load(&tensor->storage->refs) > 1)
        return ah_fail(AH_EINVAL, "prepare: parameter %d %s is a view of a larger tensor; clone it first", index,
                       ah_shape(tensor));
    return 0;
}

static int check_parameters(struct ah_tensor **params, int count)
{
    for (int i = 0; i < count; i++) {
        struct ah_device *device = params[i]->storage->device;
        for (int k = 0; k < i; k++)
            if (params[i]->storage == params[k]->storage)
                return ah_fail(AH_EINVAL, "prepare: parameters %d and %d share memory", k, i);
        if (device != params[0]->storage->device)
            return ah_fail(AH_EINVAL, "prepare: parameter 0 is on %s, parameter %d on %s; expected one device",
                           params[0]->storage->device->name, i, device->name);
        AH_TRY(check_movable(params[i], i));
    }
    return 0;
}

/* Making one. */

static int make_lists(struct ah_reducer *r)
{
    size_t n = (size_t)r->layout.count + 1;
    r->parameter = calloc(n, sizeof *r->parameter);
    r->has_grad = calloc(n, sizeof *r->has_grad);
    r->bucket = calloc(n, sizeof *r->bucket);
    r->order = calloc(n, sizeof *r->order);
    r->arrival = calloc(n, sizeof *r->arrival);
    r->bucket_unit = calloc(n, sizeof *r->bucket_unit);
    if (!r->parameter || !r->has_grad || !r->bucket || !r->order || !r->arrival || !r->bucket_unit)
        return ah_fail(AH_ENOMEM, "prepare: out of memory");
    for (int b = 0; b < r->layout.bucket_count; b++)
        r->order[b] = b;
    return 0;
}

static int make_parameters(struct ah_reducer *r, bool split, bool shared)
{
    if (r->sharding == AH_SHARD_FULL && split)
        return ah_split_new(&r->split_params, r, false);
    if (r->sharding == AH_SHARD_FULL && r->device == &ah_cpu) {
        AH_TRY(ah_common_new(&r->common, r->group, r->layout.bytes, r->where));
        r->params = ah_arena_retain(ah_common_arena(r->common));
        return 0;
    }
    struct ah_group *group = shared && r->sharding != AH_SHARD_NONE ? r->group : NULL;
    AH_TRY(ah_arena_new(&r->params, r->layout.bytes, r->device, group));
    return split ? ah_shard_expect(r) : 0;
}

static int make_arenas(struct ah_reducer *r, struct ah_tensor **params)
{
    int count = r->layout.count;
    bool several = ah_group_size(r->group) > 1, shared = r->device == &ah_cpu && several;
    bool split = r->device != &ah_cpu && several && r->sharding != AH_SHARD_NONE;
    AH_TRY(make_parameters(r, split, shared));
    if (split && r->sharding >= AH_SHARD_GRADIENTS)
        AH_TRY(ah_split_new(&r->split_grads, r, true));
    else
        AH_TRY(ah_arena_new(&r->grads, r->layout.bytes, r->device, shared ? r->group : NULL));
    for (int i = 0; i < count; i++) {
        int b = r->layout.slot[i].bucket;
        struct ah_arena *arena = r->split_grads ? ah_split_whole(r->split_grads, b) : r->grads;
        size_t before = r->split_grads ? r->layout.bucket[b].offset : 0;
        r->parameter[i].tensor = ah_tensor_retain(params[i]);
        AH_TRY(ah_arena_tensor(&r->parameter[i].grad, arena, r->layout.slot[i].offset - before, params[i]->size,
                               params[i]->ndim, params[i]->dtype));
    }
    return 0;
}

/* Rank 0's values to all. */
static struct ah_collective spread_call(struct ah_reducer *r, char *memory, size_t bytes)
{
    struct ah_collective call = ah_collective_broadcast(memory, (int64_t)bytes, AH_U8, 0);
    call.purpose = AH_FOR_PREPARE;
    call.where = r->where;
    call.device = r->device_comm;
    return call;
}

static int spread_arena(struct ah_reducer *r)
{
    AH_TRY(ah_reducer_stage(r, r->params, 0, r->params->bytes));
    struct ah_collective call = spread_call(r, ah_reducer_reachable(r, r->params, 0), r->params->bytes);
    AH_TRY(r->common ? ah_common_fill(r->common, r->where) : ah_group_run(r->group, call));
    return ah_reducer_unstage(r, r->params, 0, r->params->bytes);
}

static int spread_bucket(struct ah_reducer *r, int b)
{
    struct ah_arena *whole = ah_split_whole(r->split_params, b);
    size_t offset = r->layout.bucket[b].offset;
    if (r->device_comm)
        return ah_group_run(r->group, spread_call(r, whole->memory, whole->bytes));
    char *staged = r->staged->memory + offset;
    AH_TRY(ah_device_copy(staged, &ah_cpu, whole->memory, r->device, whole->bytes));
    AH_TRY(ah_group_run(r->group, spread_call(r, staged, whole->bytes)));
    return ah_device_copy(whole->memory, r->device, staged, &ah_cpu, whole->bytes);
}

static int reducer_spread(struct ah_reducer *r)
{
    if (!r->split_params)
        AH_TRY(spread_arena(r));
    AH_TRY(ah_buffers_send(r->buffers, 0, AH_FOR_PREPARE, r->where));
    return ah_buffers_receive(r->buffers);
}

/* Move one bucket after the other to the ranks' slices, so that at most one is there twice. */
static int move_in_slices(struct ah_reducer *r)
{
    for (int b = 0; b < r->layout.bucket_count; b++) {
        struct ah_arena *whole = ah_split_whole(r->split_params, b);
        AH_TRY(ah_split_allocate(r->split_params, b));
        for (int i = 0; i < r->layout.count; i++)
            if (r->layout.slot[i].bucket == b)
                AH_TRY(ah_arena_adopt(whole, r->layout.slot[i].offset - r->layout.bucket[b].offset,
                                      r->parameter[i].tensor));
        AH_TRY(spread_bucket(r, b));
        AH_TRY(ah_split_settle(r->split_params, b));
    }
    return 0;
}

static int move_in_arena(struct ah_reducer *r)
{
    bool brings = !r->common || ah_common_brings(r->common);
    for (int i = 0; i < r->layout.count; i++) {
        size_t offset = r->layout.slot[i].offset;
        if (brings)
            AH_TRY(ah_arena_adopt(r->params, offset, r->parameter[i].tensor));
        else
            ah_arena_place(r->params, offset, r->parameter[i].tensor);
    }
    return 0;
}

static int move_in(struct ah_reducer *r, bool apart)
{
    bool spreads = ah_group_communicates(r->group) && !apart;
    if (spreads)
        AH_TRY(ah_reducer_find_way(r));
    AH_TRY(r->split_params ? move_in_slices(r) : move_in_arena(r));
    if (spreads)
        AH_TRY(reducer_spread(r));
    for (int i = 0; i < r->layout.count; i++) {
        struct ah_sync_parameter *p = &r->parameter[i];
        AH_TRY(ah_set_grad_slot(p->tensor, p->grad, &r->has_grad[i], ah_reducer_param_ready, r, i));
    }
    return 0;
}

static int reducer_make(struct ah_reducer *r, struct ah_tensor **params, int count, struct ah_tensor **buffers,
                        int buffer_count, const struct ah_reducer_options *options)
{
    r->sharding = options->sharding;
    r->device = count ? params[0]->storage->device : &ah_cpu;
    AH_TRY(ah_layout_init(&r->layout, params, count,
                          (struct ah_layout_options){.bucket_bytes = options->bucket_bytes,
                                                     .unit = options->unit,
                                                     .parts = r->sharding ? ah_group_size(r->group) : 1}));
    AH_TRY(make_lists(r));
    for (int i = 0; options->unit && i < count; i++)
        r->bucket_unit[r->layout.slot[i].bucket] = options->unit[i];
    if (ah_group_size(r->group) > 1 && !options->apart) {
        AH_TRY(ah_agree(r->group, "parameters", r->where, params, count));
        AH_TRY(ah_agree(r->group, "buffers", r->where, buffers, buffer_count));
    }
    AH_TRY(make_arenas(r, params));
    AH_TRY(ah_buffers_new(&r->buffers, r->group, buffers, buffer_count));
    return move_in(r, options->apart);
}

int ah_reducer_new(struct ah_reducer **out, struct ah_group *group, struct ah_tensor **params, int count,
                   struct ah_tensor **buffers, int buffer_count, struct ah_reducer_options options)
{
    AH_TRY(check_parameters(params, count));
    struct ah_reducer *r = calloc(1, sizeof *r);
    AH_TRY_MEMORY(r, "prepare: out of memory");
    r->group = ah_group_retain(group);
    r->watcher = (struct ah_engine_watcher){.between = ah_reducer_progress, .context = r};
    ah_reducer_at(r, options.where);
    int status = reducer_make(r, params, count, buffers, buffer_count, &options);
    if (status < 0)
        ah_reducer_free(r);
    else
        *out = r;
    return status;
}

void ah_reducer_free(struct ah_reducer *r)
{
    if (!r)
        return;
    ah_reducer_unwatch(r);
    ah_capture_forget(r);
    for (int b = 0; b < r->layout.bucket_count && r->bucket; b++)
        if (r->bucket[b].work)
            ah_reducer_abandon(r, b);
    for (int i = 0; r->split_grads && r->has_grad && i < r->layout.count; i++)
        if (r->has_grad[i])
            ah_split_fetch(r->split_grads, r->layout.slot[i].bucket); /* without memory reading it will fail */
    for (int i = 0; i < r->layout.count && r->parameter; i++) {
        struct ah_sync_parameter *p = &r->parameter[i];
        /* Another reducer may own the parameter now. */
        if (p->tensor && p->tensor->grad && p->tensor->grad->slot && p->tensor->grad->slot == p->grad)
            ah_set_grad_slot(p->tensor, NULL, NULL, NULL, NULL, 0);
        ah_tensor_release(p->tensor);
        ah_tensor_release(p->grad);
    }
    ah_buffers_free(r->buffers);
    ah_shard_forget(r);
    ah_split_free(r->split_params);
    ah_split_free(r->split_grads);
    ah_arena_release(r->params);
    ah_common_free(r->common);
    ah_arena_release(r->grads);
    ah_arena_release(r->staged);
    ah_group_close(r->group);
    ah_layout_free(&r->layout);
    free(r->parameter);
    free(r->has_grad);
    free(r->bucket);
    free(r->order);
    free(r->arrival);
    free(r->bucket_unit);
    free(r);
}

/* Properties of a reducer. */

int ah_reducer_count(const struct ah_reducer *r)
{
    return r->layout.count;
}

struct ah_tensor *ah_reducer_param(struct ah_reducer *r, int index)
{
    return r->parameter[index].tensor;
}

struct ah_tensor *ah_reducer_grad(struct ah_reducer *r, int index)
{
    return r->parameter[index].grad;
}

bool *ah_reducer_has_grad(struct ah_reducer *r, int index)
{
    return &r->has_grad[index];
}

int ah_reducer_buckets(const struct ah_reducer *r)
{
    return r->layout.bucket_count;
}

struct ah_bucket_times ah_reducer_times(const struct ah_reducer *r, int launched)
{
    const struct ah_bucket *bucket = &r->layout.bucket[r->order[launched]];
    const struct ah_sync_bucket *state = &r->bucket[r->order[launched]];
    return (struct ah_bucket_times){.bytes = bucket->payload,
                                    .ready_ns = state->ready_ns,
                                    .issued_ns = state->issued_ns,
                                    .reduced_ns = state->reduced_ns,
                                    .first = bucket->first,
                                    .count = bucket->count};
}

int ah_reducer_bucket_of(const struct ah_reducer *r, int index)
{
    int launched = 0;
    while (r->order[launched] != r->layout.slot[index].bucket)
        launched++;
    return launched;
}

int ah_reducer_bucket(struct ah_tensor **out, struct ah_reducer *r, int launched)
{
    if (r->split_grads)
        return ah_fail(AH_ENOTIMPL, "a communication hook needs whole gradients, which are sharded");
    const struct ah_bucket *bucket = &r->layout.bucket[r->order[launched]];
    int64_t count = (int64_t)(bucket->bytes / ah_dtype_size(bucket->dtype));
    return ah_arena_tensor(out, r->grads, bucket->offset, &count, 1, bucket->dtype);
}

int64_t ah_reducer_backward_begin(const struct ah_reducer *r)
{
    return r->begin_ns;
}

int ah_reducer_rounds(const struct ah_reducer *r)
{
    return r->rounds;
}

int64_t ah_reducer_backward_end(const struct ah_reducer *r)
{
    return r->end_ns;
}
