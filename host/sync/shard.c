/* Cutting arenas by rank. Invariant: the cut depends on the layout and the number of ranks only, so that each rank
 * knows the slices of the others. */
#include "sync/shard.h"

#include <stdlib.h>

#include "autograd/graph/graph.h"
#include "sync/state.h"

struct ah_span ah_shard_of_bucket(const struct ah_reducer *r, int b, int rank)
{
    const struct ah_bucket *bucket = &r->layout.bucket[b];
    size_t slice = bucket->bytes / (size_t)ah_group_size(r->group);
    return (struct ah_span){bucket->offset + slice * (size_t)rank, slice};
}

struct ah_run ah_shard_of_param(const struct ah_reducer *r, int index, int rank)
{
    const struct ah_slot *slot = &r->layout.slot[index];
    const struct ah_tensor *grad = r->parameter[index].grad;
    if (r->sharding == AH_SHARD_NONE)
        return (struct ah_run){0, grad->numel};
    size_t width = ah_dtype_size(grad->dtype), end = slot->offset + (size_t)grad->numel * width;
    struct ah_span own = ah_shard_of_bucket(r, slot->bucket, rank);
    size_t from = own.offset > slot->offset ? own.offset : slot->offset;
    size_t to = own.offset + own.bytes < end ? own.offset + own.bytes : end;
    if (from >= to)
        return (struct ah_run){from >= end ? grad->numel : 0, 0};
    return (struct ah_run){(int64_t)((from - slot->offset) / width), (int64_t)((to - from) / width)};
}

int ah_shard_piece(struct ah_tensor **out, struct ah_reducer *r, int index, bool of_gradient)
{
    enum ah_dtype dtype = r->parameter[index].grad->dtype;
    struct ah_run own = ah_shard_of_param(r, index, ah_group_rank(r->group));
    size_t offset = r->layout.slot[index].offset + (size_t)own.first * ah_dtype_size(dtype);
    struct ah_split *split = of_gradient ? r->split_grads : r->split_params;
    if (!split)
        return ah_arena_tensor(out, of_gradient ? r->grads : r->params, offset, &own.count, 1, dtype);
    int b = r->layout.slot[index].bucket;
    struct ah_arena *slices = ah_split_slices(split);
    size_t at = own.count ? offset - ah_shard_of_bucket(r, b, ah_group_rank(r->group)).offset : 0;
    at += (size_t)(ah_split_slice(split, b) - slices->memory);
    return ah_arena_tensor(out, slices, at, &own.count, 1, dtype);
}

/* Steps. */

static struct ah_collective for_step(struct ah_reducer *r, struct ah_collective call)
{
    call.purpose = AH_FOR_STEP;
    call.where = r->where;
    return call;
}

/* Parameters on their way to a device. Their storages are marked absent until the device's later work is ordered after
 * the gather of their bucket. */

static void shard_show(struct ah_reducer *r, int b, bool absent)
{
    for (int i = 0; i < r->layout.count; i++) {
        struct ah_storage *storage = r->parameter[i].tensor->storage;
        if (r->layout.slot[i].bucket == b && storage->owner == r->params)
            storage->absent = absent;
    }
}

/* End the gather of a bucket. */
static int shard_arrive(struct ah_reducer *r, int b)
{
    struct ah_work *work = r->gather[b];
    bool ordered;
    if (!work)
        return 0;
    r->gather[b] = NULL;
    shard_show(r, b, false);
    AH_TRY(ah_work_order(work, &ordered));
    if (!ordered)
        return ah_work_wait(work);
    ah_arena_abandon(r->params, work);
    return 0;
}

static int shard_fetch(struct ah_arena *arena, struct ah_storage *storage)
{
    struct ah_reducer *r = arena->context;
    size_t offset = (size_t)((char *)storage->data - arena->memory);
    int b = 0;
    while (r && b + 1 < r->layout.bucket_count && r->layout.bucket[b + 1].offset <= offset)
        b++;
    storage->absent = false;
    return r ? shard_arrive(r, b) : 0;
}

int ah_shard_expect(struct ah_reducer *r)
{
    r->gather = calloc((size_t)r->layout.bucket_count + 1, sizeof(struct ah_work *));
    AH_TRY_MEMORY(r->gather, "prepare: out of memory");
    ah_arena_set_fetch(r->params, shard_fetch, r);
    return 0;
}

static int shard_arrive_all(struct ah_reducer *r)
{
    for (int b = 0; r->gather && b < r->layout.bucket_count; b++)
        AH_TRY(shard_arrive(r, b));
    return 0;
}

void ah_shard_forget(struct ah_reducer *r)
{
    for (int b = 0; r->gather && b < r->layout.bucket_count; b++) {
        bool ordered;
        if (!r->gather[b])
            continue;
        ah_work_order(r->gather[b], &ordered);
        shard_show(r, b, false);
        ah_arena_abandon(r->params, r->gather[b]);
    }
    if (r->gather)
        r->params->context = NULL;
    free(r->gather);
    r->gather = NULL;
}

/* Steps, continued. */

int ah_shard_settle(struct ah_reducer *r)
{
    return r->split_grads && ah_shard_find_sum(r) < 0 ? ah_split_settle_all(r->split_grads) : 0;
}

int ah_shard_release(struct ah_reducer *r, int unit)
{
    for (int b = 0; r->split_params && b < r->layout.bucket_count; b++)
        if (unit < 0 || r->bucket_unit[b] == unit)
            AH_TRY(ah_split_settle(r->split_params, b));
    return 0;
}

int ah_shard_make_whole(struct ah_reducer *r, const char *where)
{
    ah_reducer_at(r, where);
    for (int b = 0; r->split_params && b < r->layout.bucket_count; b++)
        AH_TRY(ah_split_fetch(r->split_params, b));
    return shard_arrive_all(r);
}

int ah_shard_hold(struct ah_reducer *r, const char *where)
{
    ah_reducer_at(r, where);
    AH_TRY(ah_shard_settle(r));
    AH_TRY(ah_shard_release(r, -1));
    AH_TRY(shard_arrive_all(r));
    return r->common ? ah_group_run(r->group, for_step(r, ah_collective_barrier())) : 0;
}

/* Each slice to all; all buckets are under way together. */
static int shard_gather(struct ah_reducer *r)
{
    struct ah_work **work = calloc((size_t)r->layout.bucket_count + 1, sizeof *work);
    int status = work ? 0 : ah_fail(AH_ENOMEM, "optimizer:step: out of memory");
    for (int b = 0; status == 0 && b < r->layout.bucket_count; b++) {
        const struct ah_bucket *bucket = &r->layout.bucket[b];
        struct ah_span own = ah_shard_of_bucket(r, b, ah_group_rank(r->group));
        struct ah_collective call =
            ah_collective_all_gather(r->params->memory + bucket->offset, r->params->memory + own.offset,
                                     (int64_t)(own.bytes / ah_dtype_size(bucket->dtype)), bucket->dtype);
        status = ah_group_start(r->group, for_step(r, call), &work[b]);
    }
    for (int b = 0; work && b < r->layout.bucket_count && work[b]; b++) {
        if (status == 0)
            status = ah_work_wait(work[b]);
        else
            ah_arena_abandon(r->params, work[b]);
    }
    free(work);
    return status;
}

/* The same on a device, in the order in which forward uses them: the device's later work waits for a bucket when it
 * uses one of its parameters. */
static int gather_on_device(struct ah_reducer *r)
{
    for (int b = r->layout.bucket_count - 1; b >= 0; b--) {
        const struct ah_bucket *place = &r->layout.bucket[b];
        struct ah_span own = ah_shard_of_bucket(r, b, ah_group_rank(r->group));
        AH_TRY(ah_reducer_stage(r, r->params, own.offset, own.bytes));
        struct ah_collective call = ah_collective_all_gather(
            ah_reducer_reachable(r, r->params, place->offset), ah_reducer_reachable(r, r->params, own.offset),
            (int64_t)(own.bytes / ah_dtype_size(place->dtype)), place->dtype);
        call.device = r->device_comm;
        call.ahead = true;
        if (!r->device_comm) {
            AH_TRY(ah_group_run(r->group, for_step(r, call)));
            AH_TRY(ah_reducer_unstage(r, r->params, place->offset, place->bytes));
            continue;
        }
        AH_TRY(ah_group_start(r->group, for_step(r, call), &r->gather[b]));
        shard_show(r, b, true);
    }
    /* The next bucket of gradients is copied to the same memory. */
    return r->device_comm ? 0 : ah_group_run(r->group, for_step(r, ah_collective_barrier()));
}

static int spread_on_device(struct ah_reducer *r)
{
    AH_TRY(ah_reducer_find_way(r));
    if (r->split_params)
        return ah_split_rewind(r->split_params);
    return gather_on_device(r);
}

int ah_shard_spread(struct ah_reducer *r, const char *where)
{
    ah_reducer_at(r, where);
    if (r->device != &ah_cpu && ah_group_size(r->group) > 1)
        AH_TRY(spread_on_device(r));
    else if (r->common)
        AH_TRY(ah_common_exchange(r->common, &r->layout, r->where));
    else if (ah_group_size(r->group) > 1)
        AH_TRY(shard_gather(r));
    for (int i = 0; i < r->layout.count; i++)
        ah_tensor_touch(r->parameter[i].tensor);
    return 0;
}

/* Gradients. */

int ah_shard_drop_rest(struct ah_reducer *r, int b)
{
    if (!ah_reducer_slices(r))
        return 0;
    if (r->split_grads)
        return ah_split_drop(r->split_grads, b);
    const struct ah_bucket *bucket = &r->layout.bucket[b];
    struct ah_span own = ah_shard_of_bucket(r, b, ah_group_rank(r->group));
    char *memory = r->grads->memory;
    ah_group_discard(r->group, memory + bucket->offset, own.offset - bucket->offset);
    ah_group_discard(r->group, memory + own.offset + own.bytes,
                     bucket->offset + bucket->bytes - own.offset - own.bytes);
    return 0;
}

static int share_multiply(struct ah_reducer *r, int index, enum ah_opid op)
{
    AH_OWNED struct ah_tensor *piece = NULL, *same = NULL;
    AH_GRAD_SCOPE(false);
    if (r->parameter[index].grad->storage->absent || !r->split_grads)
        AH_TRY(ah_shard_piece(&piece, r, index, true));
    else
        piece = ah_tensor_retain(r->parameter[index].grad); /* the whole one counts, and is zero elsewhere */
    const struct ah_value args[] = {AH_T(piece), AH_N(ah_group_size(r->group))};
    int outputs;
    return ah_op_call(op, args, 2, true, &same, &outputs);
}

int ah_shard_weigh(struct ah_reducer *r)
{
    for (int i = 0; i < r->layout.count; i++) {
        struct ah_sync_parameter *p = &r->parameter[i];
        p->weighed = p->mean && r->has_grad[i];
        p->mean = false;
        if (p->weighed)
            AH_TRY(share_multiply(r, i, AH_OP_mul));
    }
    return 0;
}

int ah_shard_unweigh(struct ah_reducer *r)
{
    for (int i = 0; i < r->layout.count; i++) {
        struct ah_sync_parameter *p = &r->parameter[i];
        p->mean = p->weighed;
        if (p->weighed)
            AH_TRY(share_multiply(r, i, AH_OP_div));
        p->weighed = false;
    }
    return 0;
}

void ah_shard_are_means(struct ah_reducer *r)
{
    for (int i = 0; i < r->layout.count; i++) {
        r->parameter[i].mean = ah_reducer_slices(r) && r->has_grad[i];
        r->parameter[i].weighed = false;
    }
}

int ah_shard_find_sum(const struct ah_reducer *r)
{
    for (int i = 0; ah_reducer_slices(r) && i < r->layout.count; i++)
        if (r->has_grad[i] && !r->parameter[i].mean)
            return i;
    return -1;
}
