/* A synchronised backward, from begin to finish.
 *
 * A failure is recorded and returned by finish; a backward that failed with pending buckets cannot be begun again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "base/trace/time.h"
#include "base/trace/trace.h"
#include "comm/recover/recover.h"
#include "sync/shard.h"
#include "sync/state.h"
#include "tensor/capture.h"

enum { NOTE_UNUSED = 1, MOST_UNDER_WAY = 2 };

static int average_clear(struct ah_reducer *r, int index)
{
    const struct ah_slot *slot = &r->layout.slot[index];
    char *memory = r->grads ? r->grads->memory + slot->offset : NULL;
    if (r->split_grads) {
        AH_TRY(ah_split_fetch(r->split_grads, slot->bucket));
        size_t before = r->layout.bucket[slot->bucket].offset;
        memory = ah_split_whole(r->split_grads, slot->bucket)->memory + (slot->offset - before);
    }
    return r->device->type->fill(r->device, memory, 0, slot->bytes);
}

/* Begin. */

static void average_remember(struct ah_reducer *r, int status)
{
    if (status >= 0 || r->status)
        return;
    r->status = status;
    snprintf(r->text, sizeof r->text, "%s", ah_error_text());
}

void ah_reducer_unwatch(struct ah_reducer *r)
{
    if (r->watching)
        ah_engine_unwatch(&r->watcher);
    r->watching = false;
}

/* Reset after the group was restarted on all ranks, some of which may not have received the last agreement. */
static void begin_anew(struct ah_reducer *r)
{
    for (int b = 0; b < r->layout.bucket_count; b++) {
        if (r->bucket[b].work)
            ah_reducer_abandon(r, b);
        r->order[b] = b;
    }
    ah_buffers_forget(r->buffers);
    r->active = r->ordered = r->way_known = false;
    r->device_comm = NULL;
    r->epoch = ah_group_epoch(r->group);
}

static int reducer_begin(struct ah_reducer *r, double weight, const char *where)
{
    if (!(weight >= 0) || weight > 1e300)
        return ah_fail(AH_EINVAL, "backward: expected a weight from 0, got %g", weight);
    if (r->epoch != ah_group_epoch(r->group))
        begin_anew(r);
    if (r->active && r->launched > 0)
        return ah_fail(AH_ESTATE, "backward: the last one failed with gradients under way; this job cannot continue");
    for (int b = 0; b < r->layout.bucket_count; b++)
        r->bucket[b] = (struct ah_sync_bucket){.waiting = r->layout.bucket[b].count};
    for (int i = 0; i < r->layout.count; i++)
        r->parameter[i].ready = false;
    r->arrived = r->launched = r->reduced = r->collected = 0;
    r->notes = 0;
    r->status = 0;
    r->begin_ns = ah_now_ns();
    r->weight = weight;
    if (where)
        ah_reducer_at(r, where);
    AH_TRY(ah_reducer_find_way(r));
    r->active = true;
    if (ah_reducer_meets(r) && !r->watching) {
        ah_engine_watch(&r->watcher);
        r->watching = true;
    }
    return 0;
}

static int begin_again(void *reducer, int64_t weight_bits)
{
    struct ah_reducer *r = reducer;
    double weight;
    memcpy(&weight, &weight_bits, sizeof weight);
    return reducer_begin(r, weight, NULL);
}

int ah_reducer_begin(struct ah_reducer *r, double weight, const char *where)
{
    struct ah_capture_work work = {.run = begin_again, .context = r};
    if (r->hook.launch)
        AH_TRY(ah_capture_refuse("backward", "a communication hook", "leave it out"));
    if (ah_group_size(r->group) == 1 && weight == 1) /* there is nothing to do */
        return reducer_begin(r, weight, where);
    memcpy(&work.number, &weight, sizeof weight);
    AH_TRY(ah_capture_enter(&work));
    int status = reducer_begin(r, weight, where);
    ah_capture_leave();
    return status;
}

/* While backward runs. */

/* The memory of a bucket for a call, and that of its slice; see ah_reducer_reachable. */
static char *bucket_memory(struct ah_reducer *r, int b, char **slice)
{
    size_t offset = r->layout.bucket[b].offset;
    struct ah_span own = ah_shard_of_bucket(r, b, ah_group_rank(r->group));
    bool split = r->split_grads && r->device_comm;
    char *memory = split            ? ah_split_whole(r->split_grads, b)->memory
                   : r->split_grads ? r->staged->memory + offset
                                    : ah_reducer_reachable(r, r->grads, offset);
    *slice = split ? ah_split_slice(r->split_grads, b) : memory + (own.offset - offset);
    return memory;
}

static struct ah_collective bucket_call(struct ah_reducer *r, int b)
{
    const struct ah_bucket *bucket = &r->layout.bucket[b];
    int64_t count = (int64_t)(bucket->bytes / ah_dtype_size(bucket->dtype));
    char *slice, *memory = bucket_memory(r, b, &slice);
    struct ah_collective call =
        ah_reducer_slices(r) ? ah_collective_reduce_scatter(slice, memory, count / ah_group_size(r->group),
                                                            bucket->dtype, AH_REDUCE_MEAN)
                             : ah_collective_all_reduce(memory, count, bucket->dtype, AH_REDUCE_MEAN);
    call.device = r->device_comm;
    call.weight = r->weight;
    call.ahead = true;
    call.purpose = AH_FOR_BACKWARD;
    call.where = r->where;
    return call;
}

/* A bucket of a device whose communicator does not reach the others is reduced in the group's memory. */
static int average_stage(struct ah_reducer *r, int b)
{
    const struct ah_bucket *place = &r->layout.bucket[b];
    if (!r->split_grads)
        return ah_reducer_stage(r, r->grads, place->offset, place->bytes);
    AH_TRY(ah_split_fetch(r->split_grads, b));
    if (r->device_comm)
        return 0;
    char *whole = ah_split_whole(r->split_grads, b)->memory;
    AH_TRY(ah_device_copy(r->staged->memory + place->offset, &ah_cpu, whole, r->device, place->bytes));
    return ah_split_drop(r->split_grads, b);
}

static int average_unstage(struct ah_reducer *r, int b)
{
    const struct ah_bucket *place = &r->layout.bucket[b];
    struct ah_span own = ah_shard_of_bucket(r, b, ah_group_rank(r->group));
    if (!r->split_grads)
        return ah_reducer_unstage(r, r->grads, place->offset, place->bytes);
    if (r->device_comm)
        return 0;
    return ah_device_copy(ah_split_slice(r->split_grads, b), r->device, r->staged->memory + own.offset, &ah_cpu,
                          own.bytes);
}

static int average_post(struct ah_reducer *r, int b, bool unused)
{
    r->bucket[b].issued_ns = ah_now_ns();
    AH_TRY(average_stage(r, b));
    struct ah_collective call = bucket_call(r, b);
    call.note = unused ? NOTE_UNUSED : 0;
    AH_TRY(ah_group_start(r->group, call, &r->bucket[b].work));
    return r->split_params ? ah_split_settle(r->split_params, b) : 0; /* backward has used them */
}

/* Record a bucket in a profile, on a separate lane: it is under way while nodes run. */
static void trace_bucket(const struct ah_reducer *r, int b)
{
    const struct ah_sync_bucket *bucket = &r->bucket[b];
    ah_trace_add(&(struct ah_trace_span){.name = "bucket",
                                         .begin_ns = bucket->issued_ns,
                                         .end_ns = bucket->reduced_ns,
                                         .kind = AH_TRACE_BUCKET,
                                         .thread = b,
                                         .size = (int64_t)r->layout.bucket[b].bytes});
}

/* Wait for the next bucket in order. */
static int collect_next(struct ah_reducer *r)
{
    int b = r->order[r->collected];
    struct ah_sync_bucket *bucket = &r->bucket[b];
    struct ah_work *work = bucket->work;
    uint32_t note = 0;
    bucket->work = NULL;
    AH_TRY(ah_work_wait_note(work, &note));
    AH_TRY(average_unstage(r, b));
    if (!bucket->reduced_ns) {
        bucket->reduced_ns = ah_now_ns();
        AH_TRY(ah_shard_drop_rest(r, b));
    }
    if (ah_tracing)
        trace_bucket(r, b);
    r->notes |= note;
    r->collected++;
    r->reduced = r->reduced > r->collected ? r->reduced : r->collected;
    return 0;
}

/* The device's later work waits for the next bucket that is reduced, the host does not; false where it has to. */
static int order_next(struct ah_reducer *r, bool *ordered)
{
    int b = r->order[r->reduced];
    AH_TRY(ah_work_order(r->bucket[b].work, ordered));
    if (!*ordered)
        return 0;
    r->bucket[b].reduced_ns = ah_now_ns();
    r->reduced++;
    return ah_shard_drop_rest(r, b);
}

/* Of sharded gradients few whole buckets are to be there at once: a rank, or its device, that is ahead waits for the
 * others. */
static int hold_back(struct ah_reducer *r)
{
    while (ah_reducer_slices(r) && r->launched - r->reduced > MOST_UNDER_WAY) {
        bool ordered;
        AH_TRY(order_next(r, &ordered));
        if (!ordered)
            AH_TRY(collect_next(r));
    }
    return 0;
}

/* Launch ready buckets, as far as the order allows. */
static void average_launch(struct ah_reducer *r, bool unused)
{
    while (r->launched < r->layout.bucket_count && !r->status) {
        int b = r->order[r->launched];
        if (r->bucket[b].waiting)
            return;
        if (r->hook.launch) {
            r->bucket[b].issued_ns = ah_now_ns();
            average_remember(r, r->hook.launch(r->hook.context, r->launched));
        } else {
            average_remember(r, average_post(r, b, unused));
        }
        r->launched++;
        if (!r->status && !r->hook.launch)
            average_remember(r, hold_back(r));
    }
}

static void mark_ready(struct ah_reducer *r, int index)
{
    int b = r->layout.slot[index].bucket;
    r->parameter[index].ready = true;
    if (--r->bucket[b].waiting > 0)
        return;
    r->bucket[b].ready_ns = ah_now_ns();
    r->arrival[r->arrived++] = b;
}

static void reducer_ready(struct ah_reducer *r, int index)
{
    struct ah_sync_parameter *p = &r->parameter[index];
    r->touched = true;
    if (!r->active || r->status)
        return;
    if (p->ready) {
        if (r->bucket[r->layout.slot[index].bucket].issued_ns)
            average_remember(r, ah_fail(AH_ESTATE, "backward: parameter %d got a gradient after it was sent", index));
        return;
    }
    mark_ready(r, index);
    if (ah_reducer_meets(r) || r->hook.launch)
        average_launch(r, false);
}

static int ready_again(void *reducer, int64_t index)
{
    struct ah_reducer *r = reducer;
    r->has_grad[index] = true;
    reducer_ready(r, (int)index);
    return 0;
}

void ah_reducer_param_ready(void *reducer, int index)
{
    struct ah_reducer *r = reducer;
    int status = ah_group_size(r->group) == 1 ? 1 : ah_capture_enter(&(struct ah_capture_work){ready_again, r, index});
    average_remember(r, status);
    reducer_ready(r, index);
    if (status == 0)
        ah_capture_leave();
}

bool ah_reducer_touched(struct ah_reducer *r)
{
    bool touched = r->touched;
    r->touched = false;
    return touched;
}

static void reducer_progress(struct ah_reducer *r)
{
    while (r->active && !r->status && !r->hook.launch && r->reduced < r->launched) {
        struct ah_sync_bucket *bucket = &r->bucket[r->order[r->reduced]];
        bool done = false;
        average_remember(r, ah_work_test(bucket->work, &done));
        if (!done)
            return;
        bucket->reduced_ns = ah_now_ns();
        average_remember(r, ah_shard_drop_rest(r, r->order[r->reduced]));
        r->reduced++;
    }
}

static int progress_again(void *reducer, int64_t number)
{
    reducer_progress(reducer);
    return 0;
}

void ah_reducer_progress(void *reducer)
{
    struct ah_reducer *r = reducer;
    int status = ah_capture_enter(&(struct ah_capture_work){.run = progress_again, .context = r});
    average_remember(r, status);
    reducer_progress(r);
    if (status == 0)
        ah_capture_leave();
}

/* Finish. */

/* Gradients that this backward did not compute: zero where there is none from before. */
static int fill_unused(struct ah_reducer *r, bool *unused)
{
    for (int i = 0; i < r->layout.count; i++) {
        if (r->parameter[i].ready)
            continue;
        if (!r->has_grad[i]) {
            AH_TRY(average_clear(r, i));
            *unused = true;
        }
        mark_ready(r, i);
    }
    return 0;
}

static int collect_works(struct ah_reducer *r)
{
    while (r->collected < r->layout.bucket_count)
        AH_TRY(collect_next(r));
    return 0;
}

static int collect_hooks(struct ah_reducer *r)
{
    for (int k = 0; k < r->layout.bucket_count; k++) {
        AH_TRY(r->hook.finish(r->hook.context, k));
        r->bucket[r->order[k]].reduced_ns = ah_now_ns();
        if (ah_tracing)
            trace_bucket(r, r->order[k]);
    }
    return 0;
}

static int average_run(struct ah_reducer *r, struct ah_collective call)
{
    call.purpose = AH_FOR_BACKWARD;
    call.where = r->where;
    return ah_group_run(r->group, call);
}

/* A gradient that some rank had is one on all. */
static int shard_use(struct ah_reducer *r)
{
    AH_FREED uint8_t *used = calloc((size_t)r->layout.count + 1, 1);
    AH_TRY_MEMORY(used, "backward: out of memory");
    for (int i = 0; i < r->layout.count; i++)
        used[i] = r->has_grad[i];
    AH_TRY(average_run(r, ah_collective_all_reduce(used, r->layout.count, AH_U8, AH_REDUCE_MAX)));
    for (int i = 0; i < r->layout.count; i++)
        r->has_grad[i] = used[i];
    return 0;
}

/* Agree on the order of arrival on rank 0 from now on; not where a replacement could not know it. */
static int agree_on_order(struct ah_reducer *r)
{
    int count = r->layout.bucket_count;
    r->ordered = true;
    if (count < 2 || ah_recovery_is_on())
        return 0;
    memcpy(r->order, r->arrival, (size_t)count * sizeof *r->order);
    return average_run(r, ah_collective_broadcast(r->order, count, AH_I32, 0));
}

static int finish_group(struct ah_reducer *r)
{
    bool unused = false;
    AH_TRY(fill_unused(r, &unused));
    average_launch(r, unused);
    if (r->status)
        return ah_fail(r->status, "%s", r->text);
    AH_TRY(ah_buffers_send(r->buffers, r->buffers_from, AH_FOR_BACKWARD, r->where));
    AH_TRY(r->hook.launch ? collect_hooks(r) : collect_works(r));
    AH_TRY(ah_buffers_receive(r->buffers));
    if (r->notes & NOTE_UNUSED || r->hook.launch)
        AH_TRY(shard_use(r));
    ah_shard_are_means(r);
    if (r->split_params)
        AH_TRY(ah_split_settle_all(r->split_params));
    return r->ordered ? 0 : agree_on_order(r);
}

/* Alone there is nothing to add, but a weight to divide by. */
static int average_divide(struct ah_reducer *r, const struct ah_bucket *bucket)
{
    int64_t count = (int64_t)(bucket->bytes / ah_dtype_size(bucket->dtype));
    AH_OWNED struct ah_tensor *all = NULL, *same = NULL;
    int outputs;
    AH_TRY(ah_arena_tensor(&all, r->grads, bucket->offset, &count, 1, bucket->dtype));
    AH_GRAD_SCOPE(false);
    const struct ah_value args[] = {AH_T(all), AH_N(r->weight)};
    return ah_op_call(AH_OP_div, args, 2, true, &same, &outputs);
}

static int finish_alone(struct ah_reducer *r)
{
    for (int b = 0; b < r->layout.bucket_count && r->weight != 1 && r->weight != 0; b++) {
        if (r->device == &ah_cpu)
            AH_TRY(ah_group_run(r->group, bucket_call(r, b)));
        else
            AH_TRY(average_divide(r, &r->layout.bucket[b]));
    }
    return 0;
}

static int reducer_finish(struct ah_reducer *r, const char *where)
{
    ah_reducer_unwatch(r);
    if (!r->active)
        return 0;
    if (where)
        ah_reducer_at(r, where);
    r->end_ns = ah_now_ns();
    bool together = ah_reducer_meets(r) || r->hook.launch;
    int status = together ? finish_group(r) : finish_alone(r);
    r->rounds += status == 0;
    r->active = status < 0; /* a failed one is not begun again */
    return status;
}

static int finish_again(void *reducer, int64_t number)
{
    return reducer_finish(reducer, NULL);
}

int ah_reducer_finish(struct ah_reducer *r, const char *where)
{
    if (ah_group_size(r->group) == 1 && r->weight == 1)
        return reducer_finish(r, where);
    AH_TRY(ah_capture_enter(&(struct ah_capture_work){.run = finish_again, .context = r}));
    int status = reducer_finish(r, where);
    ah_capture_leave();
    return status;
}

void ah_reducer_set_hook(struct ah_reducer *r, struct ah_reducer_hook hook)
{
    r->hook = hook;
}

void ah_reducer_buffers_from(struct ah_reducer *r, int rank)
{
    r->buffers_from = rank;
}

int ah_reducer_replace_buffer(struct ah_reducer *r, int index, struct ah_tensor *tensor)
{
    return ah_buffers_replace(r->buffers, index, tensor);
}

void ah_reducer_cancel(struct ah_reducer *r)
{
    ah_reducer_unwatch(r);
    if (r->launched == 0)
        r->active = false;
}
