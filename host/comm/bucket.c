#include "comm/bucket.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"

static const int64_t first_bucket_bytes = 1 << 20, bucket_bytes_default = 25 << 20;
enum { SLOT_ALIGN = 64, NOTE_UNUSED = 1 };

/* Memory that storages point into; freed with the last of them. */
struct arena {
    atomic_int refs;
    char *memory;
    size_t bytes;
    struct ah_group *group; /* that the memory belongs to, NULL: our own */
    struct arena *next;     /* of the idle ones */
};

/* A group's memory lives as long as the group: arenas of models that are gone wait here for one of the same size. */
static struct arena *idle;

struct parameter {
    struct ah_tensor *tensor, *grad;
    size_t offset; /* in both arenas */
    int bucket;
    bool ready;
};

struct bucket {
    size_t offset, bytes;
    enum ah_dtype dtype;
    int first, count; /* places in reverse registration order */
    int waiting;      /* parameters not ready yet */
    struct ah_work *work;
    struct ah_bucket_times times;
};

struct ah_reducer {
    struct ah_group *group;
    struct arena *params, *grads;
    int count, bucket_count, buffer_count;
    struct parameter *parameter; /* by registration */
    int *place;                  /* arena place -> registration index */
    bool *has_grad;
    struct bucket *bucket; /* by arena */
    int *order;            /* launch position -> bucket */
    int *arrival, arrived; /* buckets in the order in which they became ready */
    bool ordered;          /* the launch order is agreed */
    int launched, reduced; /* positions in `order` */
    bool active, touched;
    double weight;
    int status; /* the first failure since begin */
    char *text;
    struct ah_tensor **buffer;
    int64_t *packed; /* the buffers' bytes, 8-byte aligned each, in the group's arena */
    size_t packed_words;
    struct ah_work *packed_work;
    int64_t end_ns;
};

/* Arenas. */

static void arena_release(struct arena *arena)
{
    if (!arena || atomic_fetch_sub(&arena->refs, 1) != 1)
        return;
    if (arena->group) {
        arena->next = idle;
        idle = arena;
        return;
    }
    ah_block_free(arena->memory, arena->bytes);
    free(arena);
}

static struct arena *take_idle(struct ah_group *group, size_t bytes)
{
    for (struct arena **at = &idle; *at; at = &(*at)->next) {
        struct arena *arena = *at;
        if (arena->group != group || arena->bytes != bytes)
            continue;
        *at = arena->next;
        atomic_store(&arena->refs, 1);
        memset(arena->memory, 0, bytes);
        return arena;
    }
    return NULL;
}

static int arena_new(struct arena **out, struct ah_group *shared, size_t bytes)
{
    struct arena *arena = shared ? take_idle(shared, bytes) : NULL;
    void *memory;
    if (arena) {
        *out = arena;
        return 0;
    }
    arena = calloc(1, sizeof *arena);
    if (!arena)
        return ah_fail(AH_ENOMEM, "out of memory");
    int status = shared ? ah_group_arena_alloc(shared, bytes, &memory) : ah_block_alloc(bytes, &memory);
    if (status < 0) {
        free(arena);
        return status;
    }
    atomic_init(&arena->refs, 1);
    arena->memory = memory;
    arena->bytes = bytes;
    arena->group = shared;
    if (!shared)
        memset(memory, 0, bytes);
    *out = arena;
    return 0;
}

static void release_member(struct ah_storage *storage)
{
    arena_release(storage->owner);
}

/* Copy between a strided tensor and contiguous memory. */
static void copy_strided(const struct ah_tensor *tensor, char *buffer, bool pack)
{
    size_t width = ah_dtype_size(tensor->dtype);
    if (ah_tensor_is_contiguous(tensor)) {
        size_t bytes = (size_t)tensor->numel * width;
        if (bytes)
            memcpy(pack ? buffer : ah_tensor_data(tensor), pack ? ah_tensor_data(tensor) : buffer, bytes);
        return;
    }
    int64_t index[AH_MAX_DIMS] = {0};
    for (int64_t k = 0; k < tensor->numel; k++) {
        int64_t offset = tensor->offset;
        for (int d = 0; d < tensor->ndim; d++)
            offset += index[d] * tensor->stride[d];
        char *element = (char *)tensor->storage->data + (size_t)offset * width;
        memcpy(pack ? buffer + (size_t)k * width : element, pack ? element : buffer + (size_t)k * width, width);
        for (int d = tensor->ndim - 1; d >= 0 && ++index[d] == tensor->size[d]; d--)
            index[d] = 0;
    }
}

/* Let the storage's memory be `to`: handles, views of the whole and optimizers that hold the tensor follow. */
static void move_storage(struct ah_tensor *tensor, struct arena *arena, char *to)
{
    struct ah_storage *storage = tensor->storage;
    copy_strided(tensor, to, true);
    if (storage->release)
        storage->release(storage);
    else
        ah_block_free(storage->data, storage->nbytes);
    atomic_fetch_add(&arena->refs, 1);
    storage->data = to;
    storage->nbytes = (size_t)tensor->numel * ah_dtype_size(tensor->dtype);
    storage->release = release_member;
    storage->owner = arena;
    storage->channels_last = false;
    tensor->offset = 0;
    ah_contiguous_strides(tensor->size, tensor->ndim, tensor->stride);
}

static int check_movable(struct ah_tensor *tensor, int index)
{
    if (!ah_dtype_is_float(tensor->dtype))
        return ah_fail(AH_EINVAL, "prepare: parameter %d is %s, expected a floating dtype", index,
                       ah_dtype_name(tensor->dtype));
    AH_TRY(ah_tensor_row_major(tensor));
    bool whole = tensor->offset == 0 && ah_tensor_is_contiguous(tensor) &&
                 tensor->storage->nbytes == (size_t)tensor->numel * ah_dtype_size(tensor->dtype);
    /* What nobody else sees may be packed; what a view shows cannot be moved without its base. */
    if (!whole && atomic_load(&tensor->storage->refs) > 1)
        return ah_fail(AH_EINVAL, "prepare: parameter %d %s is a view of a larger tensor; clone it first", index,
                       ah_shape(tensor));
    return 0;
}

/* Layout. */

static size_t slot_bytes(const struct ah_tensor *tensor)
{
    size_t bytes = (size_t)tensor->numel * ah_dtype_size(tensor->dtype);
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

/* Places, offsets and buckets; returns the bytes of an arena. A bucket's span includes the holes between its slots. */
static size_t lay_out(struct ah_reducer *r, int64_t limit)
{
    size_t at = 0;
    int place = 0;
    for (int d = AH_F16; d < AH_DTYPE_COUNT; d++) {
        struct bucket *open = NULL;
        bool first = true;
        for (int i = r->count - 1; i >= 0; i--) {
            struct parameter *p = &r->parameter[i];
            if ((int)p->tensor->dtype != d)
                continue;
            if (!open) {
                open = &r->bucket[r->bucket_count++];
                *open = (struct bucket){.offset = at, .dtype = (enum ah_dtype)d, .first = place};
            }
            r->place[place++] = i;
            p->offset = at;
            p->bucket = (int)(open - r->bucket);
            at += slot_bytes(p->tensor);
            open->count++;
            open->bytes = at - open->offset;
            open->times.bytes += p->tensor->numel * (int64_t)ah_dtype_size(p->tensor->dtype);
            if (open->times.bytes >= (limit > 0 ? limit : first ? first_bucket_bytes : bucket_bytes_default)) {
                open = NULL;
                first = false;
            }
        }
    }
    for (int b = 0; b < r->bucket_count; b++) {
        r->order[b] = b;
        r->bucket[b].times.first = r->bucket[b].first;
        r->bucket[b].times.count = r->bucket[b].count;
    }
    return at;
}

/* Agreement. */

enum { DESCRIPTION = 2 + AH_MAX_DIMS };

static void describe(const struct ah_tensor *tensor, int64_t *out)
{
    memset(out, 0, DESCRIPTION * sizeof *out);
    out[0] = tensor->dtype;
    out[1] = tensor->ndim;
    for (int d = 0; d < tensor->ndim; d++)
        out[2 + d] = tensor->size[d];
}

/* Every rank must have what rank 0 has; all fail together when one has not. */
static int agree(struct ah_reducer *r, const char *what, struct ah_tensor **list, int count)
{
    int size = ah_group_size(r->group), rank = ah_group_rank(r->group), status = 0;
    int64_t own = count, *counts = malloc((size_t)size * sizeof *counts);
    int64_t *mine = calloc((size_t)count + 1, DESCRIPTION * sizeof *mine);
    int64_t *first = calloc((size_t)count + 1, DESCRIPTION * sizeof *first);
    if (!counts || !mine || !first) {
        status = ah_fail(AH_ENOMEM, "out of memory");
        goto out;
    }
    AH_TRYGO(ah_group_all_gather(r->group, counts, &own, 1, AH_I64), out);
    for (int k = 1; k < size; k++) {
        if (counts[k] != counts[0]) {
            status = ah_fail(AH_EMISMATCH, "prepare: rank 0 has %lld %s, rank %d has %lld", (long long)counts[0], what,
                             k, (long long)counts[k]);
            goto out;
        }
    }
    for (int i = 0; i < count; i++)
        describe(list[i], mine + i * DESCRIPTION);
    memcpy(first, mine, (size_t)count * DESCRIPTION * sizeof *mine);
    AH_TRYGO(ah_group_broadcast(r->group, first, (int64_t)count * DESCRIPTION, AH_I64, 0), out);
    /* The lowest (place, rank) that differs, so that all tell the same. */
    int64_t differs = INT64_MAX;
    for (int i = count - 1; i >= 0; i--)
        if (memcmp(mine + i * DESCRIPTION, first + i * DESCRIPTION, DESCRIPTION * sizeof *mine))
            differs = (int64_t)i * size + rank;
    AH_TRYGO(ah_group_all_reduce(r->group, &differs, 1, AH_I64, AH_REDUCE_MIN), out);
    if (differs != INT64_MAX) {
        int64_t *shown = mine + differs / size * DESCRIPTION, *zero = first + differs / size * DESCRIPTION;
        AH_TRYGO(ah_group_broadcast(r->group, shown, DESCRIPTION, AH_I64, (int)(differs % size)), out);
        status = ah_fail(AH_EMISMATCH, "prepare: number %lld of the %s is %s %s on rank %d, %s %s on rank 0",
                         (long long)(differs / size), what, ah_dtype_name((enum ah_dtype)shown[0]),
                         ah_shape_text(shown + 2, (int)shown[1]), (int)(differs % size),
                         ah_dtype_name((enum ah_dtype)zero[0]), ah_shape_text(zero + 2, (int)zero[1]));
    }
out:
    free(counts);
    free(mine);
    free(first);
    return status;
}

/* Buffers travel as integers to which all ranks but 0 contribute zeros: the sum is rank 0's bytes. */

static void pack_buffers(struct ah_reducer *r)
{
    memset(r->packed, 0, r->packed_words * sizeof *r->packed);
    int64_t *at = r->packed;
    for (int i = 0; i < r->buffer_count && ah_group_rank(r->group) == 0; i++) {
        copy_strided(r->buffer[i], (char *)at, true);
        at += ((size_t)r->buffer[i]->numel * ah_dtype_size(r->buffer[i]->dtype) + 7) / 8;
    }
}

static void unpack_buffers(struct ah_reducer *r)
{
    int64_t *at = r->packed;
    for (int i = 0; i < r->buffer_count && ah_group_rank(r->group) != 0; i++) {
        copy_strided(r->buffer[i], (char *)at, false);
        at += ((size_t)r->buffer[i]->numel * ah_dtype_size(r->buffer[i]->dtype) + 7) / 8;
    }
}

static int send_buffers(struct ah_reducer *r)
{
    if (!r->packed_words)
        return 0;
    for (int i = 0; i < r->buffer_count; i++)
        AH_TRY(ah_tensor_row_major(r->buffer[i]));
    pack_buffers(r);
    return ah_group_all_reduce_start(r->group, r->packed, (int64_t)r->packed_words, AH_I64, AH_REDUCE_SUM,
                                     &r->packed_work);
}

static int receive_buffers(struct ah_reducer *r)
{
    if (!r->packed_work)
        return 0;
    struct ah_work *work = r->packed_work;
    r->packed_work = NULL;
    AH_TRY(ah_work_wait(work));
    unpack_buffers(r);
    return 0;
}

/* Making one. */

static int make_grads(struct ah_reducer *r)
{
    for (int i = 0; i < r->count; i++) {
        struct parameter *p = &r->parameter[i];
        AH_TRY(ah_tensor_from_memory(&p->grad, r->grads->memory + p->offset, p->tensor->size, p->tensor->ndim,
                                     p->tensor->dtype, p->tensor->storage->device, release_member, r->grads));
        atomic_fetch_add(&r->grads->refs, 1);
    }
    return 0;
}

static int same_twice(struct ah_tensor **params, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (params[i]->storage == params[k]->storage)
                return ah_fail(AH_EINVAL, "prepare: parameters %d and %d share memory", k, i);
    return 0;
}

int ah_reducer_new(struct ah_reducer **out, struct ah_group *group, struct ah_tensor **params, int count,
                   struct ah_tensor **buffers, int buffer_count, int64_t bucket_bytes)
{
    int status = 0, size = ah_group_size(group);
    size_t n = (size_t)count + 1;
    AH_TRY(same_twice(params, count));
    for (int i = 0; i < count; i++)
        AH_TRY(check_movable(params[i], i));
    struct ah_reducer *r = calloc(1, sizeof *r);
    if (!r)
        return ah_fail(AH_ENOMEM, "out of memory");
    r->group = group;
    r->parameter = calloc(n, sizeof *r->parameter);
    r->place = calloc(n, sizeof *r->place);
    r->has_grad = calloc(n, sizeof *r->has_grad);
    r->bucket = calloc(n, sizeof *r->bucket);
    r->order = calloc(n, sizeof *r->order);
    r->arrival = calloc(n, sizeof *r->arrival);
    r->buffer = calloc((size_t)buffer_count + 1, sizeof *r->buffer);
    if (!r->parameter || !r->place || !r->has_grad || !r->bucket || !r->order || !r->arrival || !r->buffer) {
        status = ah_fail(AH_ENOMEM, "out of memory");
        goto failed;
    }
    for (int i = 0; i < count; i++)
        r->parameter[i].tensor = ah_tensor_retain(params[i]);
    r->count = count;
    size_t bytes = 0;
    for (int i = 0; i < buffer_count; i++) {
        r->buffer[i] = ah_tensor_retain(buffers[i]);
        r->packed_words += ((size_t)buffers[i]->numel * ah_dtype_size(buffers[i]->dtype) + 7) / 8;
    }
    r->buffer_count = buffer_count;
    if (size > 1) {
        AH_TRYGO(agree(r, "parameters", params, count), failed);
        AH_TRYGO(agree(r, "buffers", buffers, buffer_count), failed);
    } else {
        r->packed_words = 0;
    }
    bytes = lay_out(r, bucket_bytes);
    AH_TRYGO(arena_new(&r->params, NULL, bytes), failed);
    AH_TRYGO(arena_new(&r->grads, size > 1 ? group : NULL, bytes), failed);
    AH_TRYGO(make_grads(r), failed);
    if (r->packed_words) {
        void *packed;
        AH_TRYGO(ah_group_arena_alloc(group, r->packed_words * sizeof *r->packed, &packed), failed);
        r->packed = packed;
    }
    for (int i = 0; i < count; i++)
        move_storage(params[i], r->params, r->params->memory + r->parameter[i].offset);
    if (size > 1) {
        AH_TRYGO(ah_group_broadcast(group, r->params->memory, (int64_t)bytes, AH_U8, 0), failed);
        AH_TRYGO(send_buffers(r), failed);
        AH_TRYGO(receive_buffers(r), failed);
    }
    *out = r;
    return 0;
failed:
    ah_reducer_free(r);
    return status;
}

void ah_reducer_free(struct ah_reducer *r)
{
    if (!r)
        return;
    for (int b = 0; b < r->bucket_count; b++)
        if (r->bucket[b].work)
            ah_work_abandon(r->bucket[b].work);
    if (r->packed_work)
        ah_work_abandon(r->packed_work);
    for (int i = 0; i < r->count; i++) {
        ah_tensor_release(r->parameter[i].tensor);
        ah_tensor_release(r->parameter[i].grad);
    }
    for (int i = 0; i < r->buffer_count; i++)
        ah_tensor_release(r->buffer[i]);
    arena_release(r->params);
    arena_release(r->grads);
    free(r->parameter);
    free(r->place);
    free(r->has_grad);
    free(r->bucket);
    free(r->order);
    free(r->arrival);
    free(r->buffer);
    free(r->text);
    free(r);
}

int ah_reducer_count(const struct ah_reducer *r)
{
    return r->count;
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

/* A backward. */

static void remember(struct ah_reducer *r, int status)
{
    if (status < 0 && !r->status) {
        r->status = status;
        free(r->text);
        r->text = strdup(ah_error_text());
    }
}

int ah_reducer_begin(struct ah_reducer *r, double weight)
{
    if (!(weight >= 0) || weight > 1e300)
        return ah_fail(AH_EINVAL, "backward: expected a weight from 0, got %g", weight);
    if (r->active && r->launched > 0)
        return ah_fail(AH_ESTATE, "backward: the last one failed with gradients under way; this job cannot go on");
    for (int b = 0; b < r->bucket_count; b++) {
        struct bucket *bucket = &r->bucket[b];
        bucket->waiting = bucket->count;
        bucket->times.ready_ns = bucket->times.posted_ns = bucket->times.reduced_ns = 0;
    }
    for (int i = 0; i < r->count; i++)
        r->parameter[i].ready = false;
    r->arrived = r->launched = r->reduced = 0;
    r->status = 0;
    r->weight = weight;
    r->active = true;
    return 0;
}

static int post(struct ah_reducer *r, struct bucket *bucket, bool unused)
{
    int64_t count = (int64_t)(bucket->bytes / ah_dtype_size(bucket->dtype));
    bucket->times.posted_ns = ah_now_ns();
    ah_group_set_weight(r->group, r->weight);
    ah_group_set_note(r->group, unused ? NOTE_UNUSED : 0);
    return ah_group_all_reduce_start(r->group, r->grads->memory + bucket->offset, count, bucket->dtype,
                                     AH_REDUCE_MEAN, &bucket->work);
}

/* Launch ready buckets, as far as the order allows. */
static void launch(struct ah_reducer *r, bool unused)
{
    while (r->launched < r->bucket_count && !r->status) {
        struct bucket *bucket = &r->bucket[r->order[r->launched]];
        if (bucket->waiting)
            return;
        remember(r, post(r, bucket, unused));
        r->launched++;
    }
}

static void mark_ready(struct ah_reducer *r, int index)
{
    struct parameter *p = &r->parameter[index];
    struct bucket *bucket = &r->bucket[p->bucket];
    p->ready = true;
    if (--bucket->waiting > 0)
        return;
    bucket->times.ready_ns = ah_now_ns();
    r->arrival[r->arrived++] = p->bucket;
}

void ah_reducer_param_ready(void *reducer, int index)
{
    struct ah_reducer *r = reducer;
    r->touched = true;
    if (!r->active || r->status)
        return;
    if (r->parameter[index].ready) {
        if (r->bucket[r->parameter[index].bucket].work)
            remember(r, ah_fail(AH_ESTATE, "backward: parameter %d got a gradient after it was sent", index));
        return;
    }
    mark_ready(r, index);
    if (ah_group_size(r->group) > 1)
        launch(r, false);
}

bool ah_reducer_touched(struct ah_reducer *r)
{
    bool touched = r->touched;
    r->touched = false;
    return touched;
}

void ah_reducer_progress(struct ah_reducer *r)
{
    while (r->active && !r->status && r->reduced < r->launched) {
        struct bucket *bucket = &r->bucket[r->order[r->reduced]];
        bool done = false;
        remember(r, ah_work_test(bucket->work, &done));
        if (!done)
            return;
        bucket->times.reduced_ns = ah_now_ns();
        r->reduced++;
    }
}

/* Gradients that this backward did not bring: zero where there is none from before. */
static bool fill_unused(struct ah_reducer *r)
{
    bool unused = false;
    for (int i = 0; i < r->count; i++) {
        struct parameter *p = &r->parameter[i];
        if (p->ready)
            continue;
        if (!r->has_grad[i]) {
            memset(r->grads->memory + p->offset, 0, slot_bytes(p->tensor));
            unused = true;
        }
        mark_ready(r, i);
    }
    return unused;
}

static int collect_works(struct ah_reducer *r, uint32_t *notes)
{
    for (int k = 0; k < r->bucket_count; k++) {
        struct bucket *bucket = &r->bucket[r->order[k]];
        struct ah_work *work = bucket->work;
        uint32_t note = 0;
        bucket->work = NULL;
        AH_TRY(ah_work_wait_note(work, &note));
        if (!bucket->times.reduced_ns)
            bucket->times.reduced_ns = ah_now_ns();
        *notes |= note;
    }
    return 0;
}

/* A gradient that some rank had is one on all. */
static int share_use(struct ah_reducer *r)
{
    uint8_t *used = calloc((size_t)r->count + 1, 1);
    if (!used)
        return ah_fail(AH_ENOMEM, "out of memory");
    for (int i = 0; i < r->count; i++)
        used[i] = r->has_grad[i];
    int status = ah_group_all_reduce(r->group, used, r->count, AH_U8, AH_REDUCE_MAX);
    for (int i = 0; i < r->count && status == 0; i++)
        r->has_grad[i] = used[i];
    free(used);
    return status;
}

/* From now on in the order of arrival on rank 0. */
static int agree_on_order(struct ah_reducer *r)
{
    r->ordered = true;
    if (r->bucket_count < 2)
        return 0;
    memcpy(r->order, r->arrival, (size_t)r->bucket_count * sizeof *r->order);
    return ah_group_broadcast(r->group, r->order, r->bucket_count, AH_I32, 0);
}

static int finish_group(struct ah_reducer *r)
{
    uint32_t notes = 0;
    launch(r, fill_unused(r));
    if (r->status)
        return ah_fail(r->status, "%s", r->text ? r->text : "backward failed");
    AH_TRY(send_buffers(r));
    AH_TRY(collect_works(r, &notes));
    AH_TRY(receive_buffers(r));
    if (notes & NOTE_UNUSED)
        AH_TRY(share_use(r));
    return r->ordered ? 0 : agree_on_order(r);
}

/* Alone there is nothing to add, but a weight to divide by. */
static int finish_alone(struct ah_reducer *r)
{
    for (int b = 0; b < r->bucket_count && r->weight != 1; b++) {
        struct bucket *bucket = &r->bucket[b];
        ah_group_set_weight(r->group, r->weight);
        AH_TRY(ah_group_all_reduce(r->group, r->grads->memory + bucket->offset,
                                   (int64_t)(bucket->bytes / ah_dtype_size(bucket->dtype)), bucket->dtype,
                                   AH_REDUCE_MEAN));
    }
    return 0;
}

int ah_reducer_finish(struct ah_reducer *r)
{
    if (!r->active)
        return 0;
    r->end_ns = ah_now_ns();
    int status = ah_group_size(r->group) > 1 ? finish_group(r) : finish_alone(r);
    r->active = status < 0; /* a failed one is not begun again */
    return status;
}

void ah_reducer_cancel(struct ah_reducer *r)
{
    if (r->launched == 0)
        r->active = false;
}

int ah_reducer_buckets(const struct ah_reducer *r)
{
    return r->bucket_count;
}

struct ah_bucket_times ah_reducer_times(const struct ah_reducer *r, int launched)
{
    return r->bucket[r->order[launched]].times;
}

int64_t ah_reducer_backward_end(const struct ah_reducer *r)
{
    return r->end_ns;
}
