/* The table and the dispatcher: parse signatures once, bind arguments to parameters (numbers become wrapped tensors),
 * run the forward and record the call. On every path, temporaries of a call are released at the one label `out`. */
#include "ops/dispatch/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/trace/counters.h"
#include "base/trace/trace.h"
#include "ops/dispatch/autocast.h"
#include "ops/dispatch/rows.h"

const struct ah_recorder *ah_recorder;

static struct ah_op op_table[AH_OP_COUNT + 1] = {
#define OP(id_, forward_, kernel_, signature_, flags_) \
    {.name = #id_, .signature = signature_, .forward = ah_forward_##forward_, .flags = (flags_)},
#include "ops/schema/table.def"
#undef OP
};
static bool op_parsed;

/* A copy of the signatures. Parsing terminates words in place by zeros; parameters point to them. */
static char op_words[] =
#define OP(id, forward, kernel, signature, flags) signature "\0"
#include "ops/schema/table.def"
#undef OP
    ;

const struct ah_alias ah_aliases[] = {
#define ALIAS(name, row) {#name, AH_OP_##row},
#include "ops/schema/alias.def"
#undef ALIAS
    {NULL, AH_OP_COUNT},
};

struct ah_value ah_ints_value(const int64_t *at, int count)
{
    struct ah_value value = {.kind = AH_INTS};
    value.ints.count = count;
    for (int i = 0; i < count; i++)
        value.ints.at[i] = at[i];
    return value;
}

static enum ah_kind kind_of_letter(char letter)
{
    switch (letter) {
    case 'T': return AH_TENSOR;
    case 'O': return AH_OPERAND;
    case 'L': return AH_LIST;
    case 'i': return AH_INT;
    case 'I': return AH_INTS;
    case 'n': return AH_NUMBER;
    case 'b': return AH_FLAG;
    case 'd': return AH_DTYPE;
    case 'D': return AH_DEVICE;
    default: return AH_STRING;
    }
}

/* The text after '=' as a value of the parameter's kind. */
static struct ah_value parse_default(enum ah_kind kind, const char *text)
{
    struct ah_value value = {.kind = kind};
    switch (kind) {
    case AH_INT: value.integer = atoll(text); break;
    case AH_INTS:
        value.ints.count = 1;
        value.ints.at[0] = atoll(text);
        break;
    case AH_NUMBER: value.number = !strcmp(text, "inf") ? __builtin_inf() : strtod(text, NULL); break;
    case AH_OPERAND:
        value.kind = strchr(text, '.') ? AH_NUMBER : AH_INT;
        if (value.kind == AH_INT)
            value.integer = atoll(text);
        else
            value.number = strtod(text, NULL);
        break;
    case AH_FLAG: value.flag = !strcmp(text, "true"); break;
    case AH_DTYPE: ah_dtype_parse(text, &value.dtype); break;
    case AH_STRING: value.string = text; break;
    default: value.kind = AH_NONE; break;
    }
    return value;
}

/* End the word at `at` at the first of the marks; return the text after it. */
static char *op_cut(char *at, const char *marks)
{
    at += strcspn(at, marks);
    if (*at)
        *at++ = 0;
    return at;
}

static void parse_signature(struct ah_op *op, char *at)
{
    while (*at && op->param_count < AH_MAX_ARGS) {
        struct ah_param *param = &op->param[op->param_count++];
        param->name = at;
        at = op_cut(at, ":");
        param->kind = kind_of_letter(*at++);
        if (*at == '?') {
            param->optional = true;
            at++;
        }
        if (*at == '=') {
            const char *text = at + 1;
            at = op_cut(at, ",");
            param->has_default = true;
            param->fallback = parse_default(param->kind, text);
        }
        at += strspn(at, ", ");
    }
    int count = 0;
    while (count < op->param_count && (op->param[count].kind == AH_TENSOR || op->param[count].kind == AH_OPERAND))
        count++;
    op->tensor_count = count;
}

static void parse_table(void)
{
    char *at = op_words;
    for (int i = 0; i < AH_OP_COUNT; i++) {
        op_table[i].id = (enum ah_opid)i;
        parse_signature(&op_table[i], at);
        at += strlen(op_table[i].signature) + 1;
    }
    op_parsed = true;
}

const struct ah_op *ah_op_get(enum ah_opid id)
{
    if (!op_parsed)
        parse_table();
    return &op_table[id];
}

const struct ah_op *ah_op_find(const char *name)
{
    for (int i = 0; i < AH_OP_COUNT; i++)
        if (!strcmp(op_table[i].name, name))
            return ah_op_get((enum ah_opid)i);
    for (const struct ah_alias *alias = ah_aliases; alias->name; alias++)
        if (!strcmp(alias->name, name))
            return ah_op_get(alias->id);
    return NULL;
}

static const char *kind_text(enum ah_kind kind)
{
    static const char *const text[] = {
        [AH_NONE] = "nil",        [AH_TENSOR] = "a tensor",    [AH_OPERAND] = "a tensor or number",
        [AH_LIST] = "a list of tensors", [AH_INT] = "an integer", [AH_INTS] = "integers",
        [AH_NUMBER] = "a number", [AH_FLAG] = "true or false", [AH_DTYPE] = "a dtype",
        [AH_STRING] = "a string", [AH_DEVICE] = "a device",
    };
    return text[kind];
}

/* Convert one argument to the parameter's kind. Operands that are numbers become wrapped tensors, counted in *made
 * so that the caller can release them. */
static int bind_value(const struct ah_op *op, const struct ah_param *param, const struct ah_value *given,
                      struct ah_value *slot, uint32_t *made, int index)
{
    enum ah_kind kind = given->kind;
    if (kind == AH_NONE) {
        if (param->has_default)
            given = &param->fallback, kind = given->kind;
        else if (param->optional) {
            slot->kind = AH_NONE;
            slot->tensor = NULL;
            return 0;
        }
    }
    if (param->kind == AH_OPERAND && (kind == AH_NUMBER || kind == AH_INT || kind == AH_FLAG)) {
        enum ah_dtype dtype = kind == AH_NUMBER ? AH_F64 : kind == AH_INT ? AH_I64 : AH_BOOL;
        slot->kind = AH_TENSOR;
        AH_TRY(ah_tensor_empty(&slot->tensor, NULL, 0, dtype, &ah_cpu));
        slot->tensor->wrapped = true;
        void *data = slot->tensor->storage->data;
        if (kind == AH_NUMBER)
            *(double *)data = given->number;
        else if (kind == AH_INT)
            *(int64_t *)data = given->integer;
        else
            *(uint8_t *)data = given->flag;
        *made |= 1u << index;
        return 0;
    }
    enum ah_kind wanted = param->kind == AH_OPERAND ? AH_TENSOR : param->kind;
    if (kind == wanted) {
        *slot = *given;
        if (kind == AH_DTYPE && given == &param->fallback && given->dtype == AH_F32)
            slot->dtype = ah_default_dtype; /* "float32" in a signature is the default dtype */
        return 0;
    }
    if (wanted == AH_NUMBER && kind == AH_INT) {
        *slot = AH_N((double)given->integer);
        return 0;
    }
    if (wanted == AH_INTS && kind == AH_INT) {
        *slot = AH_INTS_OF(&given->integer, 1);
        return 0;
    }
    return ah_fail(AH_EINVAL, "%s: argument %d (%s): expected %s, got %s", op->name, index + 1, param->name,
                   kind_text(param->kind), kind_text(kind));
}

/* Dtypes without arithmetic reach only the ops that accept every dtype. */
static int admit_dtype(struct ah_call *call, enum ah_dtype dtype)
{
    if (__builtin_expect(ah_dtype_computes(dtype), 1))
        return 0;
    call->stored_dtype = true;
    if (call->op->flags & (AH_ANY_DTYPE | AH_VIEW | AH_COMPOSITE))
        return 0;
    return ah_fail(AH_EINVAL,
                   "%s: expected a dtype with arithmetic, got %s, which is stored, indexed, compared and converted "
                   "only: convert it first, for instance x:to \"int64\"",
                   call->op->name, ah_dtype_name(dtype));
}

/* Prepare one tensor among the arguments: its layout, when the op wants row-major ones, and its device. */
static int settle_tensor(struct ah_call *call, struct ah_tensor *tensor, bool operand)
{
    struct ah_device *device = tensor->storage->device;
    AH_TRY(admit_dtype(call, tensor->dtype));
    if (__builtin_expect(tensor->storage->absent, 0) && !(call->op->flags & (AH_VIEW | AH_COMPOSITE)))
        AH_TRY(ah_storage_fetch(tensor->storage));
    if (tensor->storage->channels_last && !(call->op->flags & (AH_GROUPS_LAST | AH_COMPOSITE)))
        AH_TRY(ah_tensor_row_major(tensor));
    if (device == call->device || (operand && tensor->ndim == 0 && device == &ah_cpu))
        return 0;
    if (call->device && !(call->op->flags & AH_ANY_DEVICE))
        return ah_fail(AH_EINVAL, "%s: expected all tensors on one device, got %s and %s", call->op->name,
                       call->device->name, device->name);
    if (!call->device)
        call->device = device;
    return 0;
}

/* Every tensor among the arguments, lists included. The device is the one asked for, else the tensors', else the
 * default; numbers and 0-dim operands on the CPU go with any. */
static int op_settle(struct ah_call *call)
{
    struct ah_device *asked = NULL;
    bool tensors = false;
    call->device = NULL;
    for (int i = 0; i < call->op->param_count; i++) {
        struct ah_value *arg = &call->arg[i];
        if (arg->kind == AH_TENSOR) {
            AH_TRY(settle_tensor(call, arg->tensor, call->op->param[i].kind == AH_OPERAND));
            tensors = true;
        } else if (arg->kind == AH_LIST) {
            for (int k = 0; k < arg->list.count; k++)
                AH_TRY(settle_tensor(call, arg->list.item[k], false));
        } else if (arg->kind == AH_DEVICE) {
            asked = arg->device;
        } else if (arg->kind == AH_DTYPE) {
            AH_TRY(admit_dtype(call, arg->dtype));
        }
    }
    if (asked)
        call->device = asked;
    else if (!call->device)
        call->device = tensors ? &ah_cpu : ah_default_device;
    if (call->inplace && call->device != call->arg[0].tensor->storage->device)
        return ah_fail(AH_EINVAL, "%s: expected all tensors on one device, got %s and %s", call->op->name,
                       call->arg[0].tensor->storage->device->name, call->device->name);
    return 0;
}

/* Refuse additions of every process to one memory, which would be added several times; overwriting may be the same from
 * all. */
static int check_contended(const struct ah_call *call)
{
    if (!call->inplace || !call->arg[0].tensor->storage->contended || (call->op->flags & AH_MUTATES))
        return 0;
    return ah_fail(AH_EINVAL,
                   "%s_: tensor %s has one memory for all processes of the host (a parameter with sharding = 'full'), "
                   "where each would change it once more: let the first of a host write it by copy_, "
                   "with accelerator:wait_for_everyone() before and after",
                   call->op->name, ah_shape(call->arg[0].tensor));
}

static int op_run(struct ah_call *call)
{
    const struct ah_op *op = call->op;
    AH_TRY(op_settle(call));
    AH_TRY(check_contended(call));
    call->recording = !(op->flags & AH_COMPOSITE) && ah_recorder && ah_recorder->wanted(call);
    if (call->inplace) {
        if (ah_recorder)
            AH_TRY(ah_recorder->before_inplace(call));
        call->out[0] = ah_tensor_retain(call->arg[0].tensor);
        call->out_count = 1;
    }
    AH_TRY(op->forward(call));
    if ((op->flags & AH_VIEW) && ah_recorder)
        AH_TRY(ah_recorder->track_view(call));
    int status = call->recording ? ah_recorder->record(call) : 0;
    if (call->inplace)
        ah_tensor_touch(call->out[0]);
    return status;
}

/* "[[32, 784], [128, 784]]": of the tensors among the arguments. */
static void shapes_of(const struct ah_call *call, char *text, size_t room)
{
    size_t at = (size_t)snprintf(text, room, "[");
    for (int i = 0; i < call->op->param_count && at + 160 < room; i++) {
        const struct ah_value *arg = &call->arg[i];
        int count = arg->kind == AH_TENSOR ? 1 : arg->kind == AH_LIST ? arg->list.count : 0;
        for (int k = 0; k < count && at + 160 < room; k++) {
            const struct ah_tensor *tensor = arg->kind == AH_TENSOR ? arg->tensor : arg->list.item[k];
            at += (size_t)snprintf(text + at, room - at, at > 1 ? ", [" : "[");
            for (int d = 0; d < tensor->ndim && at + 24 < room; d++)
                at += (size_t)snprintf(text + at, room - at, d ? ", %lld" : "%lld", (long long)tensor->size[d]);
            at += (size_t)snprintf(text + at, room - at, "]");
        }
    }
    snprintf(text + at, room - at, "]");
}

static void op_record(struct ah_trace_mark mark, const struct ah_call *call)
{
    char shapes[1024];
    if (ah_trace_options.shapes)
        shapes_of(call, shapes, sizeof shapes);
    ah_trace_close(mark, AH_TRACE_OP, call->op->name, ah_trace_options.shapes ? shapes : NULL);
}

static int op_call(enum ah_opid id, const struct ah_value *args, int count, bool inplace, struct ah_tensor *place,
                   struct ah_tensor **out, int *out_count)
{
    const struct ah_op *op = ah_op_get(id);
    struct ah_call call;
    call.op = op;
    call.out_count = 0;
    call.inplace = inplace || (op->flags & AH_MUTATES);
    call.place = place;
    call.stored_dtype = false;
    call.float_result = call.rounds_weight = false;
    call.recording = false;
    call.original = NULL;
    memset(call.out, 0, sizeof call.out);
    memset(call.extra, 0, sizeof call.extra);
    uint32_t made = 0;
    int status = 0, before;
    if (count > op->param_count)
        return ah_fail(AH_EINVAL, "%s: expected at most %d arguments, got %d", op->name, op->param_count, count);
    for (int i = 0; i < op->param_count; i++) {
        static const struct ah_value none = {.kind = AH_NONE};
        call.arg[i].kind = AH_NONE;
        AH_TRYGO(bind_value(op, &op->param[i], i < count ? &args[i] : &none, &call.arg[i], &made, i), out);
    }
    struct ah_trace_mark mark = ah_trace_begin(op->name);
    before = ah_counters_enter((int)id + 1);
    status = ah_autocast.enabled ? ah_autocast_run(&call, op_run) : op_run(&call);
    ah_counters_leave(before);
    if (__builtin_expect(mark.begin_ns != 0, 0))
        op_record(mark, &call);
out:
    for (int i = 0; made >> i; i++)
        if (made >> i & 1)
            ah_tensor_release(call.arg[i].tensor);
    ah_tensor_release(call.original);
    for (int i = 0; i < AH_MAX_EXTRA; i++)
        ah_tensor_release(call.extra[i]);
    if (status < 0) {
        for (int i = 0; i < AH_MAX_OUTS; i++)
            ah_tensor_release(call.out[i]);
        return ah_fail_named(status, op->name);
    }
    for (int i = 0; i < call.out_count; i++)
        out[i] = call.out[i];
    *out_count = call.out_count;
    return 0;
}

int ah_op_call(enum ah_opid id, const struct ah_value *args, int count, bool inplace, struct ah_tensor **out,
               int *out_count)
{
    return op_call(id, args, count, inplace, NULL, out, out_count);
}

int ah_op_call_into(enum ah_opid id, const struct ah_value *args, int count, struct ah_tensor *place,
                    struct ah_tensor **out, int *out_count)
{
    return op_call(id, args, count, false, place, out, out_count);
}

int ah_op_call1(enum ah_opid id, struct ah_tensor **out, const struct ah_value *args, int count)
{
    struct ah_tensor *outs[AH_MAX_OUTS];
    int out_count = 0;
    AH_TRY(ah_op_call(id, args, count, false, outs, &out_count));
    for (int i = 1; i < out_count; i++)
        ah_tensor_release(outs[i]);
    *out = outs[0];
    return 0;
}

/* Report the kernel of a call; default, unless the kernel reported its library: "own relu float32". */
static void report_kernel(const struct ah_call *call)
{
    char text[96];
    const struct ah_tensor *like = call->out[0];
    if (ah_trace_kernel_is_set())
        return;
    snprintf(text, sizeof text, "%s %s%s%s", call->device == &ah_cpu ? "own" : call->device->name, call->op->name,
             like ? " " : "", like ? ah_dtype_name(like->dtype) : "");
    ah_trace_set_kernel(text);
}

int ah_call_kernel(struct ah_call *call)
{
    ah_kernel kernel = call->device->kernels[call->op->id];
    if (!kernel)
        return ah_fail(AH_ENOTIMPL, "%s: no kernel on %s", call->op->name, call->device->name);
    if (__builtin_expect(call->stored_dtype, 0) && call->device != &ah_cpu && ah_device_has_values(call->device))
        return ah_fail(AH_ENOTIMPL, "%s: no kernel on %s for dtypes without arithmetic (int8, int16, uint16, uint32, "
                       "uint64): convert on the CPU first, for instance x:cpu():to \"int64\"", call->op->name,
                       call->device->name);
    int status = kernel(call);
    if (__builtin_expect(ah_tracing, 0))
        report_kernel(call);
    return status;
}

int ah_call_part_of(const struct ah_call *call, enum ah_opid id, struct ah_tensor *result,
                    const struct ah_value *args, int count)
{
    struct ah_call part = {.op = ah_op_get(id), .device = call->device, .out = {result}, .out_count = 1};
    memcpy(part.arg, args, (size_t)count * sizeof *args);
    return call->device->kernels[id](&part);
}

enum ah_dtype ah_call_promote(const struct ah_call *call, int count)
{
    /* PyTorch: within the highest category present, dimensioned tensors decide; else 0-dim tensors; else numbers. */
    enum ah_dtype best[3] = {AH_BOOL, AH_BOOL, AH_BOOL};
    bool any[3] = {false, false, false};
    for (int i = 0; i < count; i++) {
        if (call->arg[i].kind != AH_TENSOR)
            continue;
        const struct ah_tensor *tensor = call->arg[i].tensor;
        int rank = tensor->wrapped ? 2 : tensor->ndim == 0 ? 1 : 0;
        enum ah_dtype dtype = tensor->dtype;
        if (tensor->wrapped && dtype == AH_F64) /* a Lua number alone has the default dtype; -0 counts as whole */
            dtype = *(const double *)ah_tensor_data(tensor) == 0 ? AH_I64 : ah_default_dtype;
        best[rank] = any[rank] ? ah_dtype_promote(best[rank], dtype) : dtype;
        any[rank] = true;
    }
    enum ah_dtype result = AH_BOOL;
    bool have = false;
    for (int rank = 0; rank < 3; rank++) {
        if (!any[rank])
            continue;
        if (best[rank] == AH_DTYPE_COUNT)
            return AH_DTYPE_COUNT;
        if (!have || ah_dtype_category(best[rank]) > ah_dtype_category(result))
            result = best[rank];
        have = true;
    }
    return result;
}

int ah_call_expect_promotion(const struct ah_call *call, enum ah_dtype promoted)
{
    if (promoted < AH_DTYPE_COUNT)
        return 0;
    return ah_fail(AH_EINVAL, "%s: uint16, uint32 and uint64 have no common dtype with other integers or bool: convert "
                   "one to the other's dtype, for instance x:to \"int64\"", call->op->name);
}

static bool fits_place(const struct ah_call *call, const int64_t *size, int ndim, enum ah_dtype dtype)
{
    const struct ah_tensor *place = call->place;
    return place->dtype == dtype && place->storage->device == call->device && place->ndim == ndim &&
           memcmp(place->size, size, (size_t)ndim * sizeof *size) == 0 && ah_tensor_is_contiguous(place);
}

int ah_call_output(struct ah_call *call, int index, const int64_t *size, int ndim, enum ah_dtype dtype)
{
    if (index == 0 && call->inplace) {
        const struct ah_tensor *out = call->out[0];
        bool same = out->ndim == ndim;
        for (int d = 0; same && d < ndim; d++)
            same = out->size[d] == size[d];
        if (!same) {
            return ah_fail(AH_EINVAL, "%s_: the result has shape %s, which does not fit in place into %s",
                           call->op->name, ah_shape_text(size, ndim), ah_shape(out));
        }
        if (ah_dtype_category(dtype) > ah_dtype_category(out->dtype)) {
            return ah_fail(AH_EINVAL, "%s_: the result is %s, which cannot be stored in place into %s",
                           call->op->name, ah_dtype_name(dtype), ah_dtype_name(out->dtype));
        }
        return 0;
    }
    if (index == 0 && call->place && fits_place(call, size, ndim, dtype)) {
        call->out[0] = ah_tensor_retain(call->place);
        ah_tensor_touch(call->place);
    } else {
        int status = ah_tensor_empty(&call->out[index], size, ndim, dtype, call->device);
        if (status < 0)
            return ah_fail_prefix(status, "%s", call->op->name);
    }
    if (call->out_count <= index)
        call->out_count = index + 1;
    return 0;
}

int ah_call_single(struct ah_call *call, const int64_t *size, int ndim, enum ah_dtype dtype)
{
    AH_TRY(ah_call_output(call, 0, size, ndim, dtype));
    return ah_call_kernel(call);
}

int ah_call_expect_fits(const struct ah_call *call, int arg, enum ah_dtype dtype)
{
    const struct ah_value *value = &call->arg[arg];
    if (value->kind == AH_TENSOR && !value->tensor->wrapped)
        return 0;
    double number = value->kind == AH_TENSOR ? ah_tensor_get(value->tensor, 0) : value->number;
    if (ah_number_fits(number, dtype))
        return 0;
    return ah_fail(AH_EINVAL, "%s: %s: %.17g is outside the range of %s", call->op->name, call->op->param[arg].name,
                   number, ah_dtype_name(dtype));
}

int ah_call_expect_float(const struct ah_call *call, int arg)
{
    const struct ah_tensor *tensor = call->arg[arg].tensor;
    if (ah_dtype_is_float(tensor->dtype))
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected a floating %s, got %s", call->op->name, call->op->param[arg].name,
                   ah_dtype_name(tensor->dtype));
}
