/* accelhost._C.optim: fused optimizer steps and gradient clipping.
 *
 * step(kind, group, params, state, fresh)
 *     One step over the array `params` with the options in the table `group`. state[param] is a table with PyTorch's
 *     names: `step`, a tensor that counts on, and the kind's state tensors. Parameters without gradient are passed
 *     over. Returns nil, or, having changed nothing, an array of the parameters (from 1) whose state is missing or of
 *     another dtype or device, and has to be made first. `fresh` is a table: true at the places of parameters whose
 *     state holds nothing yet (kinds that do not count steps)
 * states(kind)                    the names of the kind's state tensors, and of its scalars: two arrays
 * clip_grad_norm(params, max_norm, norm_type, error_if_nonfinite)   returns the norm before, a 0-dim tensor
 * clip_grad_value(params, clip_value)
 *
 * Everything is read from the tables at each step, so that what a script does to them counts. */
#include <math.h>
#include <string.h>

#include "autograd/graph.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "bind/bind.h"
#include "optim/clip.h"
#include "optim/step.h"

static enum ah_optim_kind check_kind(lua_State *L, int index)
{
    const char *name = luaL_checkstring(L, index);
    for (int k = 0; k < AH_OPTIM_KINDS; k++)
        if (!strcmp(ah_optim_kinds[k].name, name))
            return (enum ah_optim_kind)k;
    ah_raise_text(L, "no optimizer is called '%s'", name);
    return AH_OPTIM_KINDS;
}

/* Options. */

enum {
    SGD = 1 << AH_OPTIM_SGD,
    ADAM = 1 << AH_OPTIM_ADAM | 1 << AH_OPTIM_ADAMW,
    RMSPROP = 1 << AH_OPTIM_RMSPROP,
    ADAGRAD = 1 << AH_OPTIM_ADAGRAD,
    ADADELTA = 1 << AH_OPTIM_ADADELTA,
    NADAM = 1 << AH_OPTIM_NADAM,
    RADAM = 1 << AH_OPTIM_RADAM,
    ADAMAX = 1 << AH_OPTIM_ADAMAX,
    LION = 1 << AH_OPTIM_LION,
    ASGD = 1 << AH_OPTIM_ASGD,
    RPROP = 1 << AH_OPTIM_RPROP,
    ALL = (1 << AH_OPTIM_KINDS) - 1
};

static const struct {
    const char *name;
    size_t offset;
    unsigned kinds;
} numbers[] = {
    {"lr", offsetof(struct ah_optim_options, lr), ALL},
    {"weight_decay", offsetof(struct ah_optim_options, weight_decay), ALL & ~RPROP},
    {"eps", offsetof(struct ah_optim_options, eps), ALL & ~(SGD | LION | ASGD | RPROP)},
    {"momentum", offsetof(struct ah_optim_options, momentum), SGD | RMSPROP},
    {"dampening", offsetof(struct ah_optim_options, dampening), SGD},
    {"alpha", offsetof(struct ah_optim_options, alpha), RMSPROP | ASGD},
    {"lr_decay", offsetof(struct ah_optim_options, lr_decay), ADAGRAD},
    {"rho", offsetof(struct ah_optim_options, rho), ADADELTA},
    {"momentum_decay", offsetof(struct ah_optim_options, momentum_decay), NADAM},
    {"lambd", offsetof(struct ah_optim_options, lambd), ASGD},
    {"t0", offsetof(struct ah_optim_options, t0), ASGD},
}, flags[] = {
    {"maximize", offsetof(struct ah_optim_options, maximize), ALL},
    {"nesterov", offsetof(struct ah_optim_options, nesterov), SGD},
    {"amsgrad", offsetof(struct ah_optim_options, amsgrad), ADAM},
    {"centered", offsetof(struct ah_optim_options, centered), RMSPROP},
    {"decoupled_weight_decay", offsetof(struct ah_optim_options, decoupled_weight_decay),
     1 << AH_OPTIM_ADAM | NADAM | RADAM},
};

/* Tables of two numbers. */
static const struct {
    const char *name;
    size_t first, second;
    unsigned kinds;
} couples[] = {
    {"betas", offsetof(struct ah_optim_options, beta1), offsetof(struct ah_optim_options, beta2),
     ADAM | NADAM | RADAM | ADAMAX | LION},
    {"etas", offsetof(struct ah_optim_options, eta_minus), offsetof(struct ah_optim_options, eta_plus), RPROP},
    {"step_sizes", offsetof(struct ah_optim_options, step_min), offsetof(struct ah_optim_options, step_max), RPROP},
};

/* The number on top of the stack, or a tensor with one element. */
static double top_number(lua_State *L, enum ah_optim_kind kind, const char *name)
{
    struct ah_tensor *tensor = ah_to_tensor(L, -1), *here;
    double value = 0;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        value = lua_tonumber(L, -1);
    } else if (tensor && tensor->numel == 1) {
        ah_check(L, ah_host_copy(&here, tensor));
        value = ah_tensor_get(here, 0);
        ah_tensor_release(here);
    } else {
        ah_raise_text(L, "%s: %s: expected a number, got %s", ah_optim_kinds[kind].name, name, luaL_typename(L, -1));
    }
    lua_pop(L, 1);
    return value;
}

static bool top_flag(lua_State *L, enum ah_optim_kind kind, const char *name)
{
    if (!lua_isboolean(L, -1))
        ah_raise_text(L, "%s: %s: expected true or false, got %s", ah_optim_kinds[kind].name, name,
                      luaL_typename(L, -1));
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

static void read_options(lua_State *L, int index, enum ah_optim_kind kind, struct ah_optim_options *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!(numbers[i].kinds & 1u << kind))
            continue;
        lua_getfield(L, index, numbers[i].name);
        *(double *)((char *)o + numbers[i].offset) = top_number(L, kind, numbers[i].name);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!(flags[i].kinds & 1u << kind))
            continue;
        lua_getfield(L, index, flags[i].name);
        *(bool *)((char *)o + flags[i].offset) = top_flag(L, kind, flags[i].name);
    }
    for (size_t i = 0; i < sizeof couples / sizeof *couples; i++) {
        if (!(couples[i].kinds & 1u << kind))
            continue;
        lua_getfield(L, index, couples[i].name);
        if (!lua_istable(L, -1))
            ah_raise_text(L, "%s: %s: expected a table of two numbers, got %s", ah_optim_kinds[kind].name,
                          couples[i].name, luaL_typename(L, -1));
        lua_rawgeti(L, -1, 1);
        *(double *)((char *)o + couples[i].first) = top_number(L, kind, couples[i].name);
        lua_rawgeti(L, -1, 2);
        *(double *)((char *)o + couples[i].second) = top_number(L, kind, couples[i].name);
        lua_pop(L, 1);
    }
}

/* A step. */

/* The names of the fields are upvalues of `step`, interned once: "step", then for each kind those of its state tensors
 * and of its scalars. */
enum { STEP_NAME = 1, FIELD_NAMES, KIND_FIELDS = AH_OPTIM_STATES + AH_OPTIM_SCALARS };

static int push_names(lua_State *L)
{
    lua_pushliteral(L, "step");
    for (int k = 0; k < AH_OPTIM_KINDS; k++) {
        for (int i = 0; i < AH_OPTIM_STATES; i++)
            lua_pushstring(L, ah_optim_kinds[k].state[i]);
        for (int i = 0; i < AH_OPTIM_SCALARS; i++)
            lua_pushstring(L, ah_optim_kinds[k].scalar[i]);
    }
    return 1 + AH_OPTIM_KINDS * KIND_FIELDS;
}

/* A field of the table on top of the stack as a tensor, NULL when it is something else. */
static struct ah_tensor *field_tensor(lua_State *L, int name)
{
    lua_pushvalue(L, lua_upvalueindex(name));
    lua_rawget(L, -2);
    struct ah_tensor *tensor = ah_to_tensor(L, -1);
    lua_pop(L, 1);
    return tensor;
}

/* Fill the item's state from the table on top of the stack; false: something is missing or has to be cast. */
static bool read_state(lua_State *L, enum ah_optim_kind kind, unsigned needs, struct ah_optim_item *item)
{
    if (needs == 0)
        return true;
    if (!lua_istable(L, -1))
        return false;
    for (int i = 0; i < AH_OPTIM_STATES; i++) {
        if (!(needs & 1u << i))
            continue;
        item->state[i] = field_tensor(L, FIELD_NAMES + (int)kind * KIND_FIELDS + i);
        const struct ah_tensor *state = item->state[i], *param = item->param;
        if (!state || state->dtype != param->dtype || state->storage->device != param->storage->device)
            return false;
    }
    for (int i = 0; i < AH_OPTIM_SCALARS && ah_optim_kinds[kind].scalar[i]; i++) {
        item->scalar[i] = field_tensor(L, FIELD_NAMES + (int)kind * KIND_FIELDS + AH_OPTIM_STATES + i);
        if (!item->scalar[i])
            return false;
    }
    if (needs & AH_OPTIM_STEP)
        item->step = field_tensor(L, STEP_NAME);
    return !(needs & AH_OPTIM_STEP) || item->step;
}

static bool flag_at(lua_State *L, int table, int index)
{
    lua_rawgeti(L, table, index);
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

enum { KIND = 1, GROUP, PARAMS, STATE, FRESH, MISSING };

static int step(lua_State *L)
{
    enum ah_optim_kind kind = check_kind(L, KIND);
    for (int index = GROUP; index <= STATE; index++)
        luaL_checktype(L, index, LUA_TTABLE);
    lua_settop(L, MISSING);
    struct ah_optim_options options;
    read_options(L, GROUP, kind, &options);
    unsigned needs = ah_optim_needs(kind, &options);
    int total = (int)lua_objlen(L, PARAMS), count = 0, missing = 0;
    struct ah_optim_item *item = lua_newuserdata(L, (size_t)(total + 1) * sizeof *item);
    for (int i = 0; i < total; i++) {
        lua_rawgeti(L, PARAMS, i + 1);
        struct ah_tensor *param = ah_to_tensor(L, -1);
        if (!param)
            ah_raise_text(L, "%s: parameter %d: expected a tensor, got %s", ah_optim_kinds[kind].name, i + 1,
                          luaL_typename(L, -1));
        struct ah_tensor *grad = ah_grad(param);
        if (!grad) {
            lua_pop(L, 1);
            continue;
        }
        item[count] = (struct ah_optim_item){.param = param, .grad = grad, .index = i + 1};
        item[count].fresh = lua_istable(L, FRESH) && flag_at(L, FRESH, i + 1);
        lua_rawget(L, STATE);
        if (!read_state(L, kind, needs, &item[count++])) {
            if (missing++ == 0) {
                lua_newtable(L);
                lua_replace(L, MISSING);
            }
            lua_pushinteger(L, i + 1);
            lua_rawseti(L, MISSING, missing);
        }
        lua_pop(L, 1);
    }
    struct ah_trace_mark mark = ah_trace_begin();
    if (!missing)
        ah_check(L, ah_optim_step(kind, &options, item, count));
    ah_trace_end(mark, AH_TRACE_OPTIMIZER, ah_optim_kinds[kind].name);
    ah_pulse_step();
    lua_settop(L, MISSING);
    return 1;
}

static void push_list(lua_State *L, const char *const *name, int most)
{
    lua_newtable(L);
    for (int i = 0; i < most && name[i]; i++) {
        lua_pushstring(L, name[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static int states(lua_State *L)
{
    const struct ah_optim_kind_info *info = &ah_optim_kinds[check_kind(L, 1)];
    push_list(L, info->state, AH_OPTIM_STATES);
    push_list(L, info->scalar, AH_OPTIM_SCALARS);
    return 2;
}

/* Clipping and unscaling. */

/* The gradients of the parameters in the array (or the one tensor) at stack index 1, in memory owned by Lua. */
static struct ah_tensor **check_gradients(lua_State *L, const char *what, int *count)
{
    bool single = !lua_istable(L, 1);
    int total = single ? 1 : (int)lua_objlen(L, 1);
    struct ah_tensor **grad = lua_newuserdata(L, (size_t)(total + 1) * sizeof(struct ah_tensor *));
    *count = 0;
    for (int i = 0; i < total; i++) {
        if (single)
            lua_pushvalue(L, 1);
        else
            lua_rawgeti(L, 1, i + 1);
        struct ah_tensor *param = ah_to_tensor(L, -1);
        if (!param)
            ah_raise_text(L, "%s: parameter %d: expected a tensor, got %s", what, i + 1, luaL_typename(L, -1));
        if (ah_grad(param))
            grad[(*count)++] = ah_grad(param);
        lua_pop(L, 1);
    }
    return grad;
}

static int clip_grad_norm(lua_State *L)
{
    int count;
    struct ah_tensor *norm = NULL, **grad = check_gradients(L, "clip_grad_norm_", &count);
    ah_check(L, ah_clip_grad_norm(grad, count, luaL_checknumber(L, 2), luaL_checknumber(L, 3), lua_toboolean(L, 4),
                                  &norm));
    ah_push_tensor(L, norm);
    return 1;
}

static int clip_grad_value(lua_State *L)
{
    int count;
    struct ah_tensor **grad = check_gradients(L, "clip_grad_value_", &count);
    ah_check(L, ah_clip_grad_value(grad, count, luaL_checknumber(L, 2)));
    return 0;
}

/* stepped(): a step that ran in Lua is over */
static int stepped(lua_State *L)
{
    ah_pulse_step();
    return 0;
}

/* unscale_grad(params, factor) -> how many have gradients, whether one was infinite or NaN */
static int unscale_grad(lua_State *L)
{
    int count;
    bool overflow;
    struct ah_tensor **grad = check_gradients(L, "unscale_", &count);
    ah_check(L, ah_unscale_grad(grad, count, luaL_checknumber(L, 2), &overflow));
    lua_pushinteger(L, count);
    lua_pushboolean(L, overflow);
    return 2;
}

int ah_open_optim(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"states", states},
        {"stepped", stepped},
        {"clip_grad_norm", clip_grad_norm},
        {"clip_grad_value", clip_grad_value},
        {"unscale_grad", unscale_grad},
        {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_pushcclosure(L, step, push_names(L));
    lua_setfield(L, -2, "step");
    return 1;
}
