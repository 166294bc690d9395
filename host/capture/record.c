/* Copies of a call keep the identities that a kernel may compare: a tensor that is an argument twice, or argument and
 * result, is one copy, and so is a storage. Values that the host has written into memory of the capture are constants:
 * those of numbers are stored in the record, those of an op's own tensors are copied again before their first use. */
#include "capture/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "tensor/rng.h"

/* The tensors of a call while its record is made: distinct ones. */
struct operands {
    struct ah_tensor **tensor;
    size_t count, room;
};

static int operand_add(struct operands *operands, struct ah_tensor *tensor)
{
    for (size_t i = 0; tensor && i < operands->count; i++)
        if (operands->tensor[i] == tensor)
            return 0;
    if (!tensor)
        return 0;
    AH_TRY(ah_grow(&operands->tensor, operands->count + 1, &operands->room, sizeof *operands->tensor));
    operands->tensor[operands->count++] = tensor;
    return 0;
}

static int operands_of(struct operands *operands, const struct ah_call *call)
{
    for (int i = 0; i < call->op->param_count; i++) {
        const struct ah_value *arg = &call->arg[i];
        if (arg->kind == AH_TENSOR)
            AH_TRY(operand_add(operands, arg->tensor));
        for (int k = 0; arg->kind == AH_LIST && k < arg->list.count; k++)
            AH_TRY(operand_add(operands, arg->list.item[k]));
    }
    for (int i = 0; i < AH_MAX_OUTS; i++)
        AH_TRY(operand_add(operands, call->out[i]));
    for (int i = 0; i < AH_MAX_EXTRA; i++)
        AH_TRY(operand_add(operands, call->extra[i]));
    return 0;
}

bool ah_record_is_result(const struct ah_call *call, const struct ah_tensor *tensor)
{
    for (int i = 0; i < AH_MAX_OUTS; i++)
        if (call->out[i] == tensor)
            return true;
    for (int i = 0; i < AH_MAX_EXTRA; i++)
        if (call->extra[i] == tensor)
            return true;
    return false;
}

static bool is_argument(const struct ah_call *call, const struct ah_tensor *tensor)
{
    for (int i = 0; i < call->op->param_count; i++) {
        const struct ah_value *arg = &call->arg[i];
        if (arg->kind == AH_TENSOR && arg->tensor == tensor)
            return true;
        for (int k = 0; arg->kind == AH_LIST && k < arg->list.count; k++)
            if (arg->list.item[k] == tensor)
                return true;
    }
    return false;
}

static struct ah_record *record_new(struct ah_records *records, enum ah_record_kind kind)
{
    if (ah_grow(&records->at, records->count + 1, &records->room, sizeof *records->at) < 0)
        return NULL;
    records->at[records->count] = (struct ah_record){.kind = kind};
    return &records->at[records->count++];
}

void ah_records_wrote(struct ah_records *records, const void *address)
{
    struct ah_pool_block *block = ah_pool_find(records->pool, address);
    if (block)
        block->written = true;
}

static int record_hold(struct ah_records *records, struct ah_storage *storage)
{
    for (size_t i = 0; i < records->held_count; i++)
        if (records->held[i].storage == storage)
            return 0;
    AH_TRY(ah_grow(&records->held, records->held_count + 1, &records->held_room, sizeof *records->held));
    records->held[records->held_count++] =
        (struct ah_record_held){ah_storage_retain(storage), storage->data, storage->channels_last};
    return 0;
}

int ah_records_check(const struct ah_records *records)
{
    for (size_t i = 0; i < records->held_count; i++) {
        const struct ah_record_held *held = &records->held[i];
        /* Relaxed: 1 is this holder's own, and the storage's memory is not read. */
        bool dropped = atomic_load_explicit(&held->storage->refs, memory_order_relaxed) == 1;
        if (dropped || held->storage->data != held->data || held->storage->channels_last != held->last)
            return ah_fail(AH_ESTATE,
                           "cpu: the captured step uses %zu bytes of a tensor that was freed or replaced since (a "
                           "parameter, a buffer or another tensor from outside of it): capture it again",
                           held->storage->nbytes);
    }
    return 0;
}

int ah_record_bytes(struct ah_records *records, enum ah_record_kind kind, const struct ah_record_bytes *bytes)
{
    struct ah_record_bytes *copy = malloc(sizeof *copy);
    struct ah_record *record = copy ? record_new(records, kind) : NULL;
    if (!record) {
        free(copy);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    *copy = *bytes;
    record->bytes = copy;
    ah_records_wrote(records, bytes->to);
    return 0;
}

/* The bytes that the host has written to `to`, again before each use of them. */
static int record_constant(struct ah_records *records, void *to, size_t bytes)
{
    struct ah_record_bytes constant = {.to = to, .bytes = bytes, .owned = malloc(bytes ? bytes : 1)};
    AH_TRY_MEMORY(constant.owned, "out of memory");
    memcpy(constant.owned, to, bytes);
    constant.from = constant.owned;
    int status = ah_record_bytes(records, AH_RECORD_COPY, &constant);
    if (status < 0)
        free(constant.owned);
    return status;
}

/* Does the kernel overwrite the whole storage of this tensor without reading it? */
static bool is_overwritten(const struct ah_call *call, const struct ah_tensor *tensor)
{
    bool whole = ah_tensor_bytes(tensor) >= tensor->storage->nbytes;
    return whole && (!is_argument(call, tensor) || ((call->op->flags & AH_MUTATES) && call->out[0] == tensor));
}

/* Prepare a tensor that a kernel will use: hold its storage, or see to it that its values are made by records. */
static int record_operand(struct ah_records *records, const struct ah_call *call, const struct ah_tensor *tensor)
{
    struct ah_storage *storage = tensor->storage;
    const struct ah_pool_block *block = ah_pool_find(records->pool, storage->data);
    if (!block)
        return record_hold(records, storage);
    if (block->written || tensor->wrapped || storage->nbytes == 0 || is_overwritten(call, tensor) ||
        (ah_record_is_result(call, tensor) && !is_argument(call, tensor)))
        return 0;
    if (!block->within_op && tensor->numel > 1)
        return ah_fail(AH_ESTATE,
                       "%s: a tensor of shape %s whose values the host wrote within the step cannot be captured in a "
                       "graph; make it before the step, or pass it as an argument",
                       call->op->name, ah_shape(tensor));
    return record_constant(records, storage->data, storage->nbytes);
}

/* The copy of a tensor of the call. */
static struct ah_tensor *record_copy_of(const struct ah_record_call *record, const struct operands *operands,
                                        const struct ah_tensor *tensor)
{
    for (size_t i = 0; tensor && i < operands->count; i++)
        if (operands->tensor[i] == tensor)
            return &record->tensor[i];
    return NULL;
}

/* Copy headers and storages; numbers have their 8 bytes behind them. */
static void record_headers(struct ah_records *records, struct ah_record_call *record, const struct operands *operands,
                           char *constants)
{
    for (size_t i = 0; i < operands->count; i++) {
        const struct ah_tensor *from = operands->tensor[i];
        struct ah_tensor *to = &record->tensor[i];
        *to = *from;
        to->refs = 1;
        to->grad = NULL;
        to->counter = NULL;
        to->storage = NULL;
        for (size_t k = 0; k < i && !to->storage; k++)
            if (operands->tensor[k]->storage == from->storage)
                to->storage = record->tensor[k].storage;
        if (to->storage)
            continue;
        struct ah_storage *storage = to->storage = &record->storage[record->storages++];
        atomic_init(&storage->refs, 1);
        storage->device = from->storage->device;
        storage->channels_last = from->storage->channels_last;
        storage->contended = from->storage->contended;
        storage->data = from->storage->data;
        storage->nbytes = from->storage->nbytes;
        const struct ah_pool_block *block = ah_pool_find(records->pool, storage->data);
        storage->version = block ? block->use : 0;
        if (from->wrapped && from->storage->nbytes <= sizeof(int64_t)) {
            storage->data = constants + i * 64;
            memcpy(storage->data, from->storage->data, from->storage->nbytes);
        }
    }
    record->tensors = (int)operands->count;
}

static int record_arguments(struct ah_record_call *record, const struct operands *operands, const struct ah_call *call,
                            struct ah_tensor **items)
{
    for (int i = 0; i < call->op->param_count; i++) {
        struct ah_value *arg = &record->call.arg[i];
        if (arg->kind == AH_TENSOR) {
            arg->tensor = record_copy_of(record, operands, arg->tensor);
        } else if (arg->kind == AH_LIST) {
            for (int k = 0; k < arg->list.count; k++)
                items[k] = record_copy_of(record, operands, call->arg[i].list.item[k]);
            arg->list.item = items;
            items += arg->list.count;
        } else if (arg->kind == AH_STRING) {
            arg->string = strdup(call->arg[i].string);
            AH_TRY_MEMORY(arg->string, "out of memory");
        }
    }
    for (int i = 0; i < AH_MAX_OUTS; i++)
        record->call.out[i] = record_copy_of(record, operands, call->out[i]);
    for (int i = 0; i < AH_MAX_EXTRA; i++)
        record->call.extra[i] = record_copy_of(record, operands, call->extra[i]);
    record->call.original = NULL;
    return 0;
}

static void record_free_call(struct ah_record_call *record)
{
    const struct ah_op *op = record->call.op;
    for (int i = 0; i < op->param_count; i++)
        if (record->call.arg[i].kind == AH_STRING)
            free((char *)(uintptr_t)record->call.arg[i].string);
    free(record->last);
    free(record->block);
    free(record);
}

static int record_make(struct ah_records *records, struct ah_record_call **out, const struct ah_call *call,
                       const struct operands *operands)
{
    struct ah_record_call *record = calloc(1, sizeof *record);
    size_t count = operands->count, items = 0;
    for (int i = 0; i < call->op->param_count; i++)
        items += call->arg[i].kind == AH_LIST ? (size_t)call->arg[i].list.count : 0;
    size_t bytes = count * (64 + sizeof(struct ah_tensor) + sizeof(struct ah_storage)) +
                   items * sizeof(struct ah_tensor *);
    if (!record || posix_memalign(&record->block, 64, bytes + 64)) {
        free(record);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    memset(record->block, 0, bytes + 64);
    char *constants = record->block;
    record->tensor = (struct ah_tensor *)(void *)(constants + count * 64);
    record->storage = (struct ah_storage *)(void *)(record->tensor + count);
    record_headers(records, record, operands, constants);
    record->call = *call;
    for (int i = 0; i < call->op->param_count; i++) /* until they are copied */
        if (call->arg[i].kind == AH_STRING)
            record->call.arg[i].string = NULL;
    int status = record_arguments(record, operands, call, (struct ah_tensor **)(void *)(record->storage + count));
    if (status < 0)
        record_free_call(record);
    else
        *out = record;
    return status;
}

/* A random op draws from a generator of the script only while the script's call runs. */
static int check_generator(const struct ah_call *call)
{
    if (!(call->op->flags & AH_RANDOM))
        return 0;
    struct ah_generator *given = ah_generator_stand_in(NULL);
    ah_generator_stand_in(given);
    return given ? ah_fail(AH_ESTATE, "%s: a generator other than the default one cannot be captured in a graph; leave "
                           "the option out", call->op->name)
                 : 0;
}

int ah_record_call(struct ah_records *records, const struct ah_call *call, ah_kernel kernel)
{
    struct operands operands = {0};
    struct ah_record_call *made = NULL;
    int status = check_generator(call);
    if (status == 0)
        status = operands_of(&operands, call);
    for (size_t i = 0; i < operands.count && status == 0; i++)
        status = record_operand(records, call, operands.tensor[i]);
    if (status == 0)
        status = record_make(records, &made, call, &operands);
    free(operands.tensor);
    AH_TRY(status);
    made->kernel = kernel;
    struct ah_record *record = record_new(records, AH_RECORD_CALL);
    if (!record) {
        record_free_call(made);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    record->call = made;
    return 0;
}

/* Compare a result with its copy, which was made before the kernel ran. */
static int check_result(struct ah_record_call *record, const struct ah_tensor *real, const struct ah_tensor *copy)
{
    if (!real && !copy)
        return 0;
    if (!real || !copy || real->storage->data != copy->storage->data)
        return ah_fail(AH_ESTATE,
                       "%s: a result whose shape depends on values cannot be captured in a graph; leave the op out of "
                       "the step",
                       record->call.op->name);
    if (real->storage->channels_last == copy->storage->channels_last || record->last)
        return 0;
    record->last = malloc((size_t)record->storages * sizeof *record->last);
    AH_TRY_MEMORY(record->last, "out of memory");
    for (int i = 0; i < record->storages; i++)
        record->last[i] = record->storage[i].channels_last;
    return 0;
}

/* Record an argument's conversion by the kernel, from channels-last to row-major order, as a transposition before the
 * call, which then has the new memory. */
static int record_conversion(struct ah_records *records, const struct ah_tensor *real, struct ah_tensor *copy)
{
    struct ah_storage *from = copy->storage, *to = real->storage;
    if (real->wrapped || from->data == to->data)
        return 0;
    if (!ah_pool_find(records->pool, from->data))
        return ah_capture_refuse(NULL, "a tensor from outside of the step that is stored channels-last",
                                 "call contiguous() before the step");
    const struct ah_record_bytes transposition = {
        .to = to->data, .from = from->data, .bytes = ah_dtype_size(real->dtype), .batch = real->size[0],
        .rows = real->size[2] * real->size[3], .columns = real->size[1]};
    AH_TRY(ah_pool_adopt(records->pool, to->data, to->nbytes));
    AH_TRY(ah_record_bytes(records, AH_RECORD_TRANSPOSE, &transposition));
    struct ah_record *last = &records->at[records->count - 1], call = last[-1];
    last[-1] = *last;
    *last = call;
    from->data = to->data;
    from->channels_last = to->channels_last;
    from->version = ah_pool_find(records->pool, to->data)->use;
    return 0;
}

static int record_conversions(struct ah_records *records, const struct ah_value *real, struct ah_value *copy)
{
    if (real->kind == AH_TENSOR)
        return record_conversion(records, real->tensor, copy->tensor);
    for (int k = 0; real->kind == AH_LIST && k < real->list.count; k++)
        AH_TRY(record_conversion(records, real->list.item[k], copy->list.item[k]));
    return 0;
}

int ah_record_called(struct ah_records *records, const struct ah_call *call)
{
    struct ah_record_call *record = records->at[records->count - 1].call;
    for (int i = 0; i < call->op->param_count; i++)
        AH_TRY(record_conversions(records, &call->arg[i], &record->call.arg[i]));
    for (int i = 0; i < AH_MAX_OUTS; i++)
        AH_TRY(check_result(record, call->out[i], record->call.out[i]));
    for (int i = 0; i < AH_MAX_EXTRA; i++)
        AH_TRY(check_result(record, call->extra[i], record->call.extra[i]));
    for (int i = 0; i < AH_MAX_OUTS; i++)
        if (call->out[i])
            ah_records_wrote(records, call->out[i]->storage->data);
    for (int i = 0; i < AH_MAX_EXTRA; i++)
        if (call->extra[i])
            ah_records_wrote(records, call->extra[i]->storage->data);
    return 0;
}

static void record_free_pass(struct ah_record_pass *pass)
{
    if (pass) {
        free(pass->segment);
        free(pass->run);
    }
    free(pass);
}

static void *record_array(const void *from, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (copy)
        memcpy(copy, from, bytes);
    return copy;
}

int ah_record_pass(struct ah_records *records, enum ah_record_kind kind, const struct ah_record_pass *pass)
{
    struct ah_record_pass *copy = malloc(sizeof *copy);
    AH_TRY_MEMORY(copy, "out of memory");
    *copy = *pass;
    size_t count = (size_t)pass->count;
    if (pass->segment)
        copy->segment = record_array(pass->segment, count * sizeof *pass->segment);
    if (pass->run)
        copy->run = record_array(pass->run, count * sizeof *pass->run);
    bool whole = !pass->segment == !copy->segment && !pass->run == !copy->run;
    struct ah_record *record = whole ? record_new(records, kind) : NULL;
    if (!record) {
        record_free_pass(copy);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    record->pass = copy;
    if (pass->norm)
        ah_records_wrote(records, pass->norm);
    return 0;
}

int ah_record_work(struct ah_records *records, const struct ah_capture_work *work)
{
    struct ah_record *record = record_new(records, AH_RECORD_WORK);
    AH_TRY_MEMORY(record, "out of memory");
    record->work = *work;
    return 0;
}

void ah_record_drop(struct ah_records *records, size_t index)
{
    struct ah_record *record = &records->at[index];
    if (record->kind == AH_RECORD_CALL) {
        record_free_call(record->call);
    } else if (record->kind >= AH_RECORD_STEP && record->kind <= AH_RECORD_CLIP) {
        record_free_pass(record->pass);
    } else if (record->kind < AH_RECORD_WORK) {
        free(record->bytes->owned);
        free(record->bytes);
    }
    record->kind = AH_RECORD_NONE;
}

void ah_records_clear(struct ah_records *records)
{
    for (size_t i = 0; i < records->count; i++)
        ah_record_drop(records, i);
    for (size_t i = 0; i < records->held_count; i++)
        ah_storage_release(records->held[i].storage);
    free(records->at);
    free(records->held);
    *records = (struct ah_records){.pool = records->pool};
}
