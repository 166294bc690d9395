/* A copy is elided if no record touches source or destination between the kernel and the copy, and none touches the
 * source after it, except as memory of other tensors. Memory is compared by address. */
#include "capture/simplify.h"

#include "base/memory/array.h"
#include "tensor/overlap.h"

enum { ALIGNMENT = 64 };

/* A range of memory. */
struct span {
    const char *begin, *end;
};

static bool span_meets(struct span span, const void *at, size_t bytes)
{
    const char *begin = at;
    return bytes && begin < span.end && begin + bytes > span.begin;
}

/* The memory between the first and the last element. */
static struct span span_of(const struct ah_tensor *tensor)
{
    int64_t low = tensor->offset, high = low + 1;
    int64_t item = (int64_t)ah_dtype_size(tensor->dtype);
    const char *data = tensor->storage->data;
    if (tensor->storage->channels_last) /* the storage has no views */
        return (struct span){data, data + tensor->storage->nbytes};
    for (int d = 0; d < tensor->ndim; d++) {
        int64_t reach = (tensor->size[d] - 1) * tensor->stride[d];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    return tensor->numel ? (struct span){data + low * item, data + high * item} : (struct span){data, data};
}

static bool tensor_meets(struct span span, const struct ah_tensor *tensor)
{
    struct span own = span_of(tensor);
    return span_meets(span, own.begin, (size_t)(own.end - own.begin));
}

static bool pass_meets(const struct ah_record_pass *pass, struct span span)
{
    size_t item = ah_dtype_size(pass->dtype);
    for (int i = 0; i < pass->count; i++) {
        const struct ah_optim_segment *segment = pass->segment ? &pass->segment[i] : NULL;
        if (segment && (span_meets(span, segment->param, (size_t)segment->n * item) ||
                        span_meets(span, segment->grad, (size_t)segment->n * item)))
            return true;
        for (int k = 0; segment && k < AH_OPTIM_STATES; k++)
            if (segment->state[k] && span_meets(span, segment->state[k], (size_t)segment->n * item))
                return true;
        if (pass->run && span_meets(span, pass->run[i].x, (size_t)pass->run[i].n * item))
            return true;
    }
    return pass->norm && span_meets(span, pass->norm, sizeof(double));
}

static bool bytes_meet(const struct ah_record *record, struct span span)
{
    const struct ah_record_bytes *b = record->bytes;
    size_t bytes = b->bytes;
    if (record->kind == AH_RECORD_TRANSPOSE)
        bytes *= (size_t)(b->batch * b->rows * b->columns);
    return (b->to && span_meets(span, b->to, bytes)) || (b->from && span_meets(span, b->from, bytes));
}

/* Does the record read or write memory of the span? The host's work is with gradients that are ready: it reaches a slot
 * only after the copy into it. */
static bool record_meets(const struct ah_record *record, struct span span)
{
    switch (record->kind) {
    case AH_RECORD_CALL:
        for (int i = 0; i < record->call->tensors; i++)
            if (tensor_meets(span, &record->call->tensor[i]))
                return true;
        return false;
    case AH_RECORD_NONE:
    case AH_RECORD_WORK:
    case AH_RECORD_GET_STATE:
    case AH_RECORD_SET_STATE:
        return false;
    case AH_RECORD_FILL:
    case AH_RECORD_COPY:
    case AH_RECORD_TRANSPOSE:
        return bytes_meet(record, span);
    default:
        return pass_meets(record->pass, span);
    }
}

/* Does exactly one tensor of the call meet the span, a result that is the whole of it? */
static struct ah_tensor *record_writes(const struct ah_record *record, struct span span)
{
    struct ah_tensor *found = NULL;
    if (record->kind != AH_RECORD_CALL)
        return NULL;
    for (int i = 0; i < record->call->tensors; i++) {
        struct ah_tensor *tensor = &record->call->tensor[i];
        if (!tensor_meets(span, tensor))
            continue;
        struct span own = span_of(tensor);
        bool whole = own.begin == span.begin && own.end == span.end && ah_tensor_is_contiguous(tensor);
        if (found || !whole || !ah_record_is_result(&record->call->call, tensor) || tensor->storage->channels_last ||
            record->call->last)
            return NULL;
        found = tensor;
    }
    /* An argument that is the result too would be read. */
    for (int i = 0; found && i < record->call->call.op->param_count; i++)
        if (ah_given(&record->call->call.arg[i]) == found)
            return NULL;
    return found;
}

/* Is the storage of `tensor` that of no other tensor of the call? */
static bool is_alone(const struct ah_record_call *call, const struct ah_tensor *tensor)
{
    int count = 0;
    for (int i = 0; i < call->tensors; i++)
        count += call->tensor[i].storage == tensor->storage;
    return count == 1;
}

static bool is_plain_copy(const struct ah_record *record)
{
    if (record->kind != AH_RECORD_CALL || record->call->call.op->id != AH_OP_copy_)
        return false;
    const struct ah_tensor *to = record->call->call.out[0], *from = record->call->call.arg[1].tensor;
    return to->dtype == from->dtype && ah_same_shape(to, from) && ah_tensor_is_contiguous(to) &&
           ah_tensor_is_contiguous(from) && !to->storage->channels_last && !from->storage->channels_last &&
           to->numel > 0 && !from->wrapped;
}

/* Is the source's memory that of other tensors from the copy on? */
static bool is_dropped(struct ah_records *records, size_t copy, struct span source, uint32_t use)
{
    for (size_t i = copy + 1; i < records->count; i++) {
        const struct ah_record *record = &records->at[i];
        if (!record_meets(record, source))
            continue;
        if (record->kind != AH_RECORD_CALL)
            return false;
        for (int k = 0; k < record->call->tensors; k++)
            if (tensor_meets(source, &record->call->tensor[k]) && record->call->tensor[k].storage->version == use)
                return false;
        return true;
    }
    const struct ah_pool_block *block = ah_pool_find(records->pool, source.begin);
    return block && (block->freed || block->use != use);
}

static bool elide(struct ah_records *records, size_t copy)
{
    const struct ah_call *call = &records->at[copy].call->call;
    struct span source = span_of(call->arg[1].tensor), destination = span_of(call->out[0]);
    uint32_t use = call->arg[1].tensor->storage->version;
    struct ah_tensor *written = NULL;
    if (!ah_pool_find(records->pool, source.begin) || (uintptr_t)destination.begin % ALIGNMENT ||
        (uintptr_t)source.begin % ALIGNMENT)
        return false;
    for (size_t i = copy; i-- > 0 && !written;) {
        const struct ah_record *record = &records->at[i];
        bool meets = record_meets(record, source);
        if (record_meets(record, destination))
            return false;
        if (!meets)
            continue;
        written = record_writes(record, source);
        if (!written || written->storage->version != use || !is_alone(record->call, written))
            return false;
    }
    if (!written || !is_dropped(records, copy, source, use))
        return false;
    written->storage->data = (void *)(uintptr_t)destination.begin;
    written->offset = 0;
    return true;
}

void ah_records_elide_copies(struct ah_records *records)
{
    size_t kept = 0;
    for (size_t i = 0; i < records->count; i++)
        if (is_plain_copy(&records->at[i]) && elide(records, i))
            ah_record_drop(records, i);
    for (size_t i = 0; i < records->count; i++)
        if (records->at[i].kind != AH_RECORD_NONE)
            records->at[kept++] = records->at[i];
    records->count = kept;
}

static int places_of(const struct ah_record_call *call, const struct ah_storage *storage,
                     struct ah_record_places *places)
{
    for (int i = 0; i < call->storages; i++) {
        if (call->storage[i].data != storage->data)
            continue;
        AH_TRY(ah_grow(&places->at, places->count + 1, &places->room, sizeof *places->at));
        places->at[places->count++] = &call->storage[i].data;
    }
    return 0;
}

int ah_records_places(struct ah_records *records, const struct ah_tensor *input, struct ah_record_places *places)
{
    enum { REFERENCES = 2 }; /* of the input and of the list of held storages */
    struct span span = span_of(input);
    places->count = 0;
    if (atomic_load(&input->storage->refs) > REFERENCES || input->offset || input->storage->channels_last)
        return 0;
    for (size_t i = 0; i < records->count; i++) {
        const struct ah_record *record = &records->at[i];
        bool reads = record->kind == AH_RECORD_CALL;
        if (!record_meets(record, span))
            continue;
        for (int k = 0; reads && k < record->call->tensors; k++) {
            const struct ah_tensor *tensor = &record->call->tensor[k];
            reads = !tensor_meets(span, tensor) || !ah_record_is_result(&record->call->call, tensor);
        }
        if (!reads) {
            places->count = 0;
            return 0;
        }
        AH_TRY(places_of(record->call, input->storage, places));
    }
    return 0;
}
