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
    return ah_arena_tensor(out, of_gradient ? r->grads : r->params, offset, &own.count, 1, dtype);
}

/* Steps. */

static struct ah_collective for_step(struct ah_reducer *r, struct ah_collective call)
{
    call.purpose = AH_FOR_STEP;
    call.where = r->where;
    return call;
}

int ah_shard_hold(struct ah_reducer *r, const char *where)
{
    ah_reducer_at(r, where);
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

int ah_shard_spread(struct ah_reducer *r, const char *where)
{
    ah_reducer_at(r, where);
    if (r->common)
        AH_TRY(ah_common_exchange(r->common, &r->layout, r->where));
    else if (ah_group_size(r->group) > 1)
        AH_TRY(shard_gather(r));
    for (int i = 0; i < r->layout.count; i++)
        ah_tensor_touch(r->parameter[i].tensor);
    return 0;
}

/* Gradients. */

void ah_shard_drop_rest(struct ah_reducer *r, int b)
{
    if (!ah_reducer_slices(r))
        return;
    const struct ah_bucket *bucket = &r->layout.bucket[b];
    struct ah_span own = ah_shard_of_bucket(r, b, ah_group_rank(r->group));
    char *memory = r->grads->memory;
    ah_group_discard(r->group, memory + bucket->offset, own.offset - bucket->offset);
    ah_group_discard(r->group, memory + own.offset + own.bytes,
                     bucket->offset + bucket->bytes - own.offset - own.bytes);
}

static int share_multiply(struct ah_reducer *r, int index, enum ah_opid op)
{
    struct ah_tensor *piece, *same = NULL;
    AH_GRAD_SCOPE(false);
    AH_TRY(ah_shard_piece(&piece, r, index, true));
    const struct ah_value args[] = {AH_T(piece), AH_N(ah_group_size(r->group))};
    int outputs, status = ah_op_call(op, args, 2, true, &same, &outputs);
    ah_tensor_release(same);
    ah_tensor_release(piece);
    return status;
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
