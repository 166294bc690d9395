/* accelhost._C.optim: fused optimizer steps and gradient clipping.
 *
 * plan(kind, params)              a list of parameters to be stepped together, with places for their state
 * set_state(plan, i, step, ...)   the state of parameter i (from 1): its step counter (a tensor, which counts on; true:
 *                                 the state is fresh, this kind counts nothing; nil) and its state tensors or nils
 * step(plan, group)               one step with the options in the table `group`. Parameters without gradient are
 *                                 passed over. Returns nil, or, having changed nothing, an array of the parameters
 *                                 whose state has to be made first
 * clip_grad_norm(params, max_norm, norm_type, error_if_nonfinite)   returns the norm before, a 0-dim tensor
 * clip_grad_value(params, clip_value)
 *
 * A plan retains tensors, not addresses: storages may move into an arena between steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/graph.h"
#include "base/alloc.h"
#include "bind/bind.h"
#include "cpu/optim.h"

#define PLAN "accelhost.optim.plan"

static const char *const kind_names[AH_OPTIM_KINDS] = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta"};

struct slot {
    struct ah_tensor *param, *step, *state[AH_OPTIM_STATES];
    bool fresh;
};

struct plan {
    enum ah_optim_kind kind;
    int count;
    struct slot *slot;
    struct ah_optim_segment *segment; /* [count], for one step */
    struct piece *piece;              /* [count * ARRAYS], for one step */
};

/* The elements of a tensor as one contiguous run: its own memory, or a packed copy that is written back. */
struct piece {
    struct ah_tensor *tensor;
    void *data;
    bool packed;
};

enum { ARRAYS = 2 + AH_OPTIM_STATES };

/* Copy between a strided tensor and a contiguous buffer. */
static void copy_strided(const struct ah_tensor *tensor, char *buffer, bool pack)
{
    size_t size = ah_dtype_size(tensor->dtype);
    int64_t index[AH_MAX_DIMS] = {0};
    for (int64_t k = 0; k < tensor->numel; k++) {
        int64_t offset = tensor->offset;
        for (int d = 0; d < tensor->ndim; d++)
            offset += index[d] * tensor->stride[d];
        char *element = (char *)tensor->storage->data + (size_t)offset * size;
        if (pack)
            memcpy(buffer + (size_t)k * size, element, size);
        else
            memcpy(element, buffer + (size_t)k * size, size);
        for (int d = tensor->ndim - 1; d >= 0 && ++index[d] == tensor->size[d]; d--)
            index[d] = 0;
    }
}

static int piece_open(struct piece *piece, struct ah_tensor *tensor)
{
    piece->tensor = tensor;
    piece->packed = false;
    if (!tensor->storage)
        return ah_fail(AH_ESTATE, "a tensor of the optimizer was freed");
    AH_TRY(ah_tensor_row_major(tensor));
    if (ah_tensor_is_contiguous(tensor)) {
        piece->data = ah_tensor_data(tensor);
        return 0;
    }
    AH_TRY(ah_block_alloc((size_t)tensor->numel * ah_dtype_size(tensor->dtype), &piece->data));
    piece->packed = true;
    copy_strided(tensor, piece->data, true);
    return 0;
}

static void piece_close(struct piece *piece, bool written)
{
    if (written)
        piece->tensor->storage->version++;
    if (!piece->packed)
        return;
    if (written)
        copy_strided(piece->tensor, piece->data, false);
    ah_block_free(piece->data, (size_t)piece->tensor->numel * ah_dtype_size(piece->tensor->dtype));
}

static void slot_clear_state(struct slot *slot)
{
    ah_tensor_release(slot->step);
    slot->step = NULL;
    for (int i = 0; i < AH_OPTIM_STATES; i++) {
        ah_tensor_release(slot->state[i]);
        slot->state[i] = NULL;
    }
}

static int plan_gc(lua_State *L)
{
    struct plan *plan = lua_touserdata(L, 1);
    for (int i = 0; plan->slot && i < plan->count; i++) {
        ah_tensor_release(plan->slot[i].param);
        slot_clear_state(&plan->slot[i]);
    }
    free(plan->slot);
    free(plan->segment);
    free(plan->piece);
    memset(plan, 0, sizeof *plan);
    return 0;
}

static int plan_new(lua_State *L)
{
    enum ah_optim_kind kind = (enum ah_optim_kind)luaL_checkoption(L, 1, NULL, kind_names);
    luaL_checktype(L, 2, LUA_TTABLE);
    int count = (int)lua_objlen(L, 2);
    struct plan *plan = lua_newuserdata(L, sizeof *plan);
    memset(plan, 0, sizeof *plan);
    luaL_getmetatable(L, PLAN);
    lua_setmetatable(L, -2);
    size_t room = count > 0 ? (size_t)count : 1;
    plan->kind = kind;
    plan->slot = calloc(room, sizeof *plan->slot);
    plan->segment = calloc(room, sizeof *plan->segment);
    plan->piece = calloc(room * ARRAYS, sizeof *plan->piece);
    if (!plan->slot || !plan->segment || !plan->piece)
        return ah_raise(L, ah_fail(AH_ENOMEM, "out of memory for an optimizer of %d parameters", count));
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        struct ah_tensor *param = ah_check_tensor(L, -1);
        if (!ah_dtype_is_float(param->dtype))
            return ah_raise_text(L, "%s: parameter %d is %s; only floating tensors can be optimized", kind_names[kind],
                                 i, ah_dtype_name(param->dtype));
        plan->slot[i].param = ah_tensor_retain(param);
        plan->count = i + 1;
        lua_pop(L, 1);
    }
    return 1;
}

static int plan_set_state(lua_State *L)
{
    struct plan *plan = luaL_checkudata(L, 1, PLAN);
    int index = (int)luaL_checkinteger(L, 2);
    if (index < 1 || index > plan->count)
        return ah_raise_text(L, "optimizer state: parameter %d of %d", index, plan->count);
    struct slot *slot = &plan->slot[index - 1];
    struct ah_tensor *state[AH_OPTIM_STATES] = {NULL}, *step = NULL;
    bool fresh = lua_isboolean(L, 3) && lua_toboolean(L, 3);
    if (!lua_isboolean(L, 3))
        step = ah_opt_tensor(L, 3);
    if (step && step->numel != 1)
        return ah_raise_text(L, "optimizer state: expected a step counter with one element, got shape %s",
                             ah_shape(step));
    for (int i = 0; i < AH_OPTIM_STATES; i++) {
        state[i] = ah_opt_tensor(L, 4 + i);
        if (state[i] && (!ah_same_shape(state[i], slot->param) || state[i]->dtype != slot->param->dtype))
            return ah_raise_text(L, "optimizer state of parameter %d: expected %s of %s, got %s of %s", index - 1,
                                 ah_shape(slot->param), ah_dtype_name(slot->param->dtype), ah_shape(state[i]),
                                 ah_dtype_name(state[i]->dtype));
    }
    slot_clear_state(slot);
    slot->fresh = fresh;
    slot->step = step ? ah_tensor_retain(step) : NULL;
    for (int i = 0; i < AH_OPTIM_STATES; i++)
        slot->state[i] = state[i] ? ah_tensor_retain(state[i]) : NULL;
    return 0;
}

/* Which of the state tensors (bits 0..) and the step counter (STEP) a step with these options uses. */
enum { STEP = 8 };

static unsigned state_needed(enum ah_optim_kind kind, const struct ah_optim_options *o)
{
    switch (kind) {
    case AH_OPTIM_SGD:
        return o->momentum != 0 ? 1 : 0;
    case AH_OPTIM_ADAM:
    case AH_OPTIM_ADAMW:
        return 3 | STEP | (o->amsgrad ? 4 : 0);
    case AH_OPTIM_RMSPROP:
        return 1 | STEP | (o->momentum > 0 ? 2 : 0) | (o->centered ? 4 : 0);
    case AH_OPTIM_ADAGRAD:
        return 1 | STEP;
    case AH_OPTIM_ADADELTA:
        return 3 | STEP;
    case AH_OPTIM_KINDS:
        break;
    }
    return 0;
}

static bool slot_has(const struct slot *slot, unsigned needed)
{
    for (int i = 0; i < AH_OPTIM_STATES; i++)
        if (needed & 1u << i && !slot->state[i])
            return false;
    return !(needed & STEP) || slot->step;
}

static double number_field(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    double value = lua_tonumber(L, -1); /* absent: 0 */
    lua_pop(L, 1);
    return value;
}

static bool flag_field(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

static void read_options(lua_State *L, int index, enum ah_optim_kind kind, struct ah_optim_options *o)
{
    memset(o, 0, sizeof *o);
    lua_getfield(L, index, "lr");
    if (lua_type(L, -1) == LUA_TNUMBER)
        o->lr = lua_tonumber(L, -1);
    else if (ah_to_tensor(L, -1))
        o->lr = ah_tensor_get(ah_to_tensor(L, -1), 0);
    else
        ah_raise_text(L, "%s: expected a number as lr, got %s", kind_names[kind], luaL_typename(L, -1));
    lua_pop(L, 1);
    o->weight_decay = number_field(L, index, "weight_decay");
    o->eps = number_field(L, index, "eps");
    o->maximize = flag_field(L, index, "maximize");
    if (kind == AH_OPTIM_SGD || kind == AH_OPTIM_RMSPROP)
        o->momentum = number_field(L, index, "momentum");
    if (kind == AH_OPTIM_SGD) {
        o->dampening = number_field(L, index, "dampening");
        o->nesterov = flag_field(L, index, "nesterov");
    } else if (kind == AH_OPTIM_ADAM || kind == AH_OPTIM_ADAMW) {
        lua_getfield(L, index, "betas");
        if (!lua_istable(L, -1))
            ah_raise_text(L, "%s: expected betas = {beta1, beta2}, got %s", kind_names[kind], luaL_typename(L, -1));
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        o->beta1 = lua_tonumber(L, -2);
        o->beta2 = lua_tonumber(L, -1);
        lua_pop(L, 3);
        o->amsgrad = flag_field(L, index, "amsgrad");
    } else if (kind == AH_OPTIM_RMSPROP) {
        o->alpha = number_field(L, index, "alpha");
        o->centered = flag_field(L, index, "centered");
    } else if (kind == AH_OPTIM_ADAGRAD) {
        o->lr_decay = number_field(L, index, "lr_decay");
    } else if (kind == AH_OPTIM_ADADELTA) {
        o->rho = number_field(L, index, "rho");
    }
}

static int check_gradient(const struct plan *plan, int index, const struct ah_tensor *grad)
{
    const struct ah_tensor *param = plan->slot[index].param;
    if (grad->dtype != param->dtype)
        return ah_fail(AH_EINVAL, "%s: the gradient of parameter %d is %s, the parameter %s", kind_names[plan->kind],
                       index, ah_dtype_name(grad->dtype), ah_dtype_name(param->dtype));
    if (!ah_same_shape(grad, param))
        return ah_fail(AH_EINVAL, "%s: the gradient of parameter %d has shape %s, the parameter %s",
                       kind_names[plan->kind], index, ah_shape(grad), ah_shape(param));
    return 0;
}

/* Step all parameters of one dtype that have a gradient. */
static int step_dtype(struct plan *plan, const struct ah_optim_options *options, unsigned needed,
                      enum ah_dtype dtype)
{
    int status = 0, opened = 0, count = 0;
    for (int i = 0; i < plan->count; i++) {
        struct slot *slot = &plan->slot[i];
        struct ah_tensor *grad = slot->param->dtype == dtype ? ah_grad(slot->param) : NULL;
        if (!grad)
            continue;
        AH_TRYGO(check_gradient(plan, i, grad), done);
        struct ah_optim_segment *segment = &plan->segment[count];
        struct ah_tensor *array[ARRAYS] = {slot->param, grad};
        for (int a = 0; a < AH_OPTIM_STATES; a++)
            array[2 + a] = needed & 1u << a ? slot->state[a] : NULL;
        for (int a = 0; a < ARRAYS; a++) {
            struct piece *piece = &plan->piece[count * ARRAYS + a];
            *piece = (struct piece){0};
            opened = count * ARRAYS + a + 1;
            if (array[a])
                AH_TRYGO(piece_open(piece, array[a]), done);
        }
        const struct piece *piece = &plan->piece[count * ARRAYS];
        *segment = (struct ah_optim_segment){.param = piece[0].data, .grad = piece[1].data, .n = slot->param->numel};
        for (int a = 0; a < AH_OPTIM_STATES; a++)
            segment->state[a] = piece[2 + a].data;
        segment->step = slot->step ? ah_tensor_get(slot->step, 0) + 1 : slot->fresh ? 1 : 2;
        count++;
    }
    ah_optim_step(plan->kind, options, plan->segment, count, dtype);
    for (int i = 0; i < plan->count; i++) {
        struct slot *slot = &plan->slot[i];
        if (slot->param->dtype != dtype || !ah_grad(slot->param))
            continue;
        if (slot->step)
            ah_tensor_set(slot->step, 0, ah_tensor_get(slot->step, 0) + 1);
        slot->fresh = slot->fresh && !(needed & 1);
    }
done:
    for (int i = 0; i < opened; i++)
        if (plan->piece[i].data)
            piece_close(&plan->piece[i], status == 0 && i % ARRAYS != 1);
    return status;
}

static int plan_step(lua_State *L)
{
    struct plan *plan = luaL_checkudata(L, 1, PLAN);
    luaL_checktype(L, 2, LUA_TTABLE);
    struct ah_optim_options options;
    read_options(L, 2, plan->kind, &options);
    unsigned needed = state_needed(plan->kind, &options), dtypes = 0;
    int missing = 0;
    for (int i = 0; i < plan->count; i++) {
        const struct slot *slot = &plan->slot[i];
        if (!ah_grad(slot->param))
            continue;
        dtypes |= 1u << slot->param->dtype;
        if (slot_has(slot, needed))
            continue;
        if (missing++ == 0)
            lua_newtable(L);
        lua_pushinteger(L, i + 1);
        lua_rawseti(L, -2, missing);
    }
    if (missing)
        return 1;
    for (int dtype = 0; dtype < AH_DTYPE_COUNT; dtype++)
        if (dtypes & 1u << dtype)
            ah_check(L, step_dtype(plan, &options, needed, (enum ah_dtype)dtype));
    return 0;
}

/* The parameter at `index` of the array (or the single tensor) at stack index 1, from 1; NULL past the end. */
static struct ah_tensor *param_at(lua_State *L, int index)
{
    if (!lua_istable(L, 1))
        return index == 1 ? ah_check_tensor(L, 1) : NULL;
    lua_rawgeti(L, 1, index);
    struct ah_tensor *tensor = lua_isnil(L, -1) ? NULL : ah_check_tensor(L, -1);
    lua_pop(L, 1);
    return tensor;
}

static int gradient_norm(struct ah_tensor *grad, double p, double *out)
{
    struct piece piece;
    AH_TRY(piece_open(&piece, grad));
    *out = ah_optim_norm_sum(piece.data, grad->numel, p, grad->dtype);
    piece_close(&piece, false);
    return 0;
}

static int gradient_change(struct ah_tensor *grad, double value, void (*change)(void *, int64_t, double, enum ah_dtype))
{
    struct piece piece;
    AH_TRY(piece_open(&piece, grad));
    change(piece.data, grad->numel, value, grad->dtype);
    piece_close(&piece, true);
    return 0;
}

static int clip_grad_norm(lua_State *L)
{
    double max_norm = luaL_checknumber(L, 2), p = luaL_optnumber(L, 3, 2), total = 0;
    bool strict = lua_toboolean(L, 4), all_double = true, any = false;
    struct ah_tensor *param;
    for (int i = 1; (param = param_at(L, i)); i++) {
        struct ah_tensor *grad = ah_grad(param);
        if (!grad)
            continue;
        double part = 0;
        ah_check(L, gradient_norm(grad, p, &part));
        any = true;
        all_double = all_double && grad->dtype == AH_F64;
        if (!isinf(p))
            total += part;
        else if (part > total || isnan(part))
            total = part;
        if (isnan(total))
            break;
    }
    if (!isinf(p))
        total = p == 2 ? sqrt(total) : pow(total, 1 / p);
    if (strict && !isfinite(total))
        return ah_raise_text(L,
                             "clip_grad_norm_: the total norm of order %g of the gradients is %g, so they cannot be "
                             "clipped",
                             p, total);
    enum ah_dtype dtype = any && all_double ? AH_F64 : AH_F32;
    /* PyTorch computes max_norm / (norm + 1e-6) as a reciprocal and a product, in the gradients' dtype. */
    double factor = dtype == AH_F64 ? 1 / (total + 1e-6) * max_norm
                                    : (double)(1 / ((float)total + 1e-6f) * (float)max_norm);
    for (int i = 1; any && !(factor >= 1) && (param = param_at(L, i)); i++)
        if (ah_grad(param))
            ah_check(L, gradient_change(ah_grad(param), factor, ah_optim_scale));
    struct ah_tensor *result = NULL;
    ah_check(L, ah_tensor_scalar(&result, total, dtype, &ah_cpu));
    ah_push_tensor(L, result);
    return 1;
}

static int clip_grad_value(lua_State *L)
{
    double limit = luaL_checknumber(L, 2);
    struct ah_tensor *param;
    for (int i = 1; (param = param_at(L, i)); i++)
        if (ah_grad(param))
            ah_check(L, gradient_change(ah_grad(param), limit, ah_optim_clamp));
    return 0;
}

int ah_open_optim(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"plan", plan_new},
        {"set_state", plan_set_state},
        {"step", plan_step},
        {"clip_grad_norm", clip_grad_norm},
        {"clip_grad_value", clip_grad_value},
        {NULL, NULL},
    };
    if (luaL_newmetatable(L, PLAN)) {
        lua_pushcfunction(L, plan_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_pop(L, 1);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
