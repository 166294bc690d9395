/* Casting the arguments of calls, by the rules of autocast.def, and keeping the casts of weights in a hash table by
 * address. Invariant: a kept cast is only returned again while its leaf has the version it was made of, and with
 * gradients recorded only if its own cast was. */
#include "ops/dispatch/autocast.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

struct ah_autocast ah_autocast = {
    .cache = true, .dtype = {[AH_AUTOCAST_CPU] = AH_BF16, [AH_AUTOCAST_CUDA] = AH_F16}};

static int autocast_nesting;

static const unsigned char autocast_rules[AH_OP_COUNT][AH_AUTOCAST_KINDS] = {
#define AUTOCAST(row, cpu, cuda) [AH_OP_##row] = {AH_AUTOCAST_##cpu, AH_AUTOCAST_##cuda},
#include "ops/schema/autocast.def"
#undef AUTOCAST
};

/* A kept cast: both tensors are owned. */
struct kept {
    struct ah_tensor *leaf, *cast;
    uint32_t version;
    bool recorded;
};

/* Open addressing; `room` is 0 or a power of two, at most half of it is used. */
static struct {
    struct kept *slot;
    size_t room, count;
} kept_casts;

static struct kept *slot_of(const struct ah_tensor *leaf)
{
    size_t at = ((uintptr_t)leaf >> 4) * 0x9e3779b97f4a7c15u >> 20;
    while (kept_casts.slot[at & (kept_casts.room - 1)].leaf && kept_casts.slot[at & (kept_casts.room - 1)].leaf != leaf)
        at++;
    return &kept_casts.slot[at & (kept_casts.room - 1)];
}

/* Room for one more. */
static int autocast_reserve(void)
{
    if (kept_casts.count * 2 < kept_casts.room)
        return 0;
    size_t room = kept_casts.room, wider = room ? room * 2 : 64;
    struct kept *old = kept_casts.slot, *slot = calloc(wider, sizeof *slot);
    AH_TRY_MEMORY(slot, "autocast: out of memory");
    kept_casts.slot = slot;
    kept_casts.room = wider;
    for (size_t i = 0; i < room; i++)
        if (old[i].leaf)
            *slot_of(old[i].leaf) = old[i];
    free(old);
    return 0;
}

void ah_autocast_clear(void)
{
    for (size_t i = 0; i < kept_casts.room; i++) {
        ah_tensor_release(kept_casts.slot[i].cast);
        ah_tensor_release(kept_casts.slot[i].leaf);
    }
    free(kept_casts.slot);
    kept_casts.slot = NULL;
    kept_casts.room = kept_casts.count = 0;
}

unsigned ah_autocast_switch(unsigned enabled)
{
    unsigned before = ah_autocast.enabled;
    ah_autocast.enabled = enabled;
    return before;
}

void ah_autocast_set(const struct ah_autocast *state)
{
    ah_autocast = *state;
}

struct ah_autocast ah_autocast_enter(const struct ah_autocast *block)
{
    struct ah_autocast before = ah_autocast;
    autocast_nesting++;
    ah_autocast = *block;
    return before;
}

void ah_autocast_leave(const struct ah_autocast *before)
{
    ah_autocast = *before;
    if (--autocast_nesting == 0)
        ah_autocast_clear();
}

enum ah_autocast_kind ah_autocast_kind(const char *type)
{
    return !strcmp(type, "cpu") ? AH_AUTOCAST_CPU : !strcmp(type, "cuda") ? AH_AUTOCAST_CUDA : AH_AUTOCAST_KINDS;
}

static enum ah_autocast_kind kind_at(const struct ah_tensor *tensor)
{
    return ah_on_cpu(tensor) ? AH_AUTOCAST_CPU : ah_autocast_kind(tensor->storage->device->type->name);
}

enum ah_autocast_kind ah_autocast_leading(enum ah_autocast_kind kind, const struct ah_tensor *tensor)
{
    enum ah_autocast_kind own = kind_at(tensor);
    bool on = own < AH_AUTOCAST_KINDS && (ah_autocast.enabled >> own & 1);
    return on && (own == AH_AUTOCAST_CUDA || kind == AH_AUTOCAST_KINDS) ? own : kind;
}

static bool is_eligible(const struct ah_tensor *tensor, enum ah_autocast_kind kind)
{
    bool narrow = tensor->dtype == AH_F32 || tensor->dtype == AH_F16 || tensor->dtype == AH_BF16;
    return narrow && kind_at(tensor) == kind;
}

/* The cast of a weight, made or found. */
static int cast_kept(struct ah_tensor **out, struct ah_tensor *leaf, enum ah_dtype dtype)
{
    bool recorded = ah_recorder->is_recording();
    AH_TRY(autocast_reserve());
    struct kept *slot = slot_of(leaf);
    if (slot->leaf && slot->cast->dtype == dtype && slot->version == ah_tensor_version(leaf) &&
        slot->recorded == recorded) {
        *out = ah_tensor_retain(slot->cast);
        return 0;
    }
    AH_TRY(ah_op1(AH_OP_to, out, AH_T(leaf), AH_D(dtype)));
    if (slot->leaf)
        ah_tensor_release(slot->cast);
    else
        slot->leaf = ah_tensor_retain(leaf), kept_casts.count++;
    slot->cast = ah_tensor_retain(*out);
    slot->version = ah_tensor_version(leaf);
    slot->recorded = recorded;
    return 0;
}

int ah_autocast_tensor(struct ah_tensor **out, struct ah_tensor *tensor, enum ah_autocast_kind kind,
                       enum ah_dtype dtype)
{
    if (!is_eligible(tensor, kind) || tensor->dtype == dtype) {
        *out = ah_tensor_retain(tensor);
        return 0;
    }
    bool keep = ah_autocast.cache && autocast_nesting > 0 && dtype == ah_autocast.dtype[kind] &&
                tensor->dtype == AH_F32 && ah_recorder && ah_recorder->is_parameter(tensor);
    return keep ? cast_kept(out, tensor, dtype) : ah_op1(AH_OP_to, out, AH_T(tensor), AH_D(dtype));
}

bool ah_autocast_lowers(const struct ah_tensor *tensor, enum ah_dtype *dtype)
{
    enum ah_autocast_kind kind = ah_autocast_leading(AH_AUTOCAST_KINDS, tensor);
    if (kind == AH_AUTOCAST_KINDS || !is_eligible(tensor, kind))
        return false;
    *dtype = ah_autocast.dtype[kind];
    return true;
}

enum ah_dtype ah_autocast_wider(enum ah_dtype dtype, const struct ah_tensor *tensor, enum ah_autocast_kind kind)
{
    return is_eligible(tensor, kind) ? ah_dtype_promote(dtype, tensor->dtype) : dtype;
}

/* Return the kind whose rules a call follows. */
static enum ah_autocast_kind kind_of(const struct ah_call *call)
{
    enum ah_autocast_kind kind = AH_AUTOCAST_KINDS;
    for (int i = 0; i < call->op->param_count; i++) {
        const struct ah_value *arg = &call->arg[i];
        if (arg->kind == AH_TENSOR)
            kind = ah_autocast_leading(kind, arg->tensor);
        for (int k = 0; arg->kind == AH_LIST && k < arg->list.count; k++)
            kind = ah_autocast_leading(kind, arg->list.item[k]);
    }
    return kind;
}

/* The dtype to which a call's arguments go. */
static enum ah_dtype dtype_of(const struct ah_call *call, enum ah_autocast_rule rule, enum ah_autocast_kind kind)
{
    if (rule == AH_AUTOCAST_FLOAT)
        return AH_F32;
    enum ah_dtype dtype = ah_autocast.dtype[kind];
    for (int i = 0; rule == AH_AUTOCAST_WIDEST && i < call->op->param_count; i++) {
        const struct ah_value *arg = &call->arg[i];
        if (arg->kind == AH_TENSOR)
            dtype = ah_autocast_wider(dtype, arg->tensor, kind);
        for (int k = 0; arg->kind == AH_LIST && k < arg->list.count; k++)
            dtype = ah_autocast_wider(dtype, arg->list.item[k], kind);
    }
    return dtype;
}

/* An argument of a call before it was cast. */
struct original {
    struct ah_value arg[AH_MAX_ARGS];
    int count; /* arguments that have been cast */
};

static int cast_list(struct ah_value *arg, enum ah_autocast_kind kind, enum ah_dtype dtype)
{
    int count = arg->list.count;
    struct ah_tensor **item = calloc((size_t)(count ? count : 1), sizeof(struct ah_tensor *));
    AH_TRY_MEMORY(item, "autocast: out of memory");
    int status = 0;
    for (int k = 0; k < count && status == 0; k++)
        status = ah_autocast_tensor(&item[k], arg->list.item[k], kind, dtype);
    *arg = AH_L(item, count);
    return status;
}

/* With fewer rows the product waits for the weight, of which a copy in bfloat16 has half of the bytes. */
enum { ROUNDED_ROWS = 64 };

/* Is argument `i` of a linear map a weight that stays float32? */
static bool stays_wide(const struct ah_call *call, int i, enum ah_dtype dtype)
{
    const struct ah_tensor *x = call->arg[0].tensor, *weight = call->arg[i].tensor;
    if (strcmp(call->op->param[i].name, "weight") || dtype != AH_BF16 || weight->dtype != AH_F32 || weight->ndim != 2)
        return false;
    const struct ah_device *device = weight->storage->device;
    return device->rounds_weights && device->rounds_weights() && weight->size[1] &&
           x->numel / weight->size[1] >= ROUNDED_ROWS;
}

static int cast_arguments(struct ah_call *call, struct original *original, enum ah_autocast_rule rule,
                          enum ah_autocast_kind kind)
{
    enum ah_dtype dtype = dtype_of(call, rule, kind);
    int status = 0;
    for (int i = 0; i < call->op->param_count && status == 0; i++) {
        struct ah_value *arg = &call->arg[i];
        original->arg[i] = *arg;
        if (arg->kind == AH_LIST) {
            status = cast_list(arg, kind, dtype);
        } else if (arg->kind == AH_TENSOR) {
            struct ah_tensor *tensor = arg->tensor;
            bool wide = rule == AH_AUTOCAST_LINEAR && stays_wide(call, i, dtype);
            call->rounds_weight |= wide;
            arg->tensor = wide ? ah_tensor_retain(tensor) : NULL;
            if (!wide)
                status = ah_autocast_tensor(&arg->tensor, tensor, kind, dtype);
        }
        original->count = i + 1;
    }
    return status;
}

static void autocast_restore(struct ah_call *call, const struct original *original)
{
    for (int i = 0; i < original->count; i++) {
        struct ah_value *arg = &call->arg[i];
        if (arg->kind == AH_LIST) {
            for (int k = 0; k < arg->list.count; k++)
                ah_tensor_release(arg->list.item[k]);
            free(arg->list.item);
        } else if (arg->kind == AH_TENSOR) {
            ah_tensor_release(arg->tensor);
        }
        *arg = original->arg[i];
    }
}

int ah_autocast_run(struct ah_call *call, int (*run)(struct ah_call *call))
{
    const unsigned char *of = autocast_rules[call->op->id];
    enum ah_autocast_kind kind = of[AH_AUTOCAST_CPU] | of[AH_AUTOCAST_CUDA] ? kind_of(call) : AH_AUTOCAST_KINDS;
    enum ah_autocast_rule rule = kind < AH_AUTOCAST_KINDS ? of[kind] : AH_AUTOCAST_NONE;
    if (rule == AH_AUTOCAST_NONE)
        return run(call);
    struct original original;
    original.count = 0;
    int status = 0;
    call->float_result = rule == AH_AUTOCAST_RESULT;
    if (rule != AH_AUTOCAST_OWN && rule != AH_AUTOCAST_RESULT && !call->inplace)
        status = cast_arguments(call, &original, rule, kind);
    if (status == 0) {
        AH_AUTOCAST_OFF();
        status = run(call);
    }
    autocast_restore(call, &original);
    return status;
}
