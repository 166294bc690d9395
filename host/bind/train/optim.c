/* accelhost._C.optim: fused optimizer steps and gradient clipping.
 *
 * step(kind, group, params, state, fresh, keep, unless)
 *     One step over the array `params` with the options in the table `group`. state[param] is a table with PyTorch's
 *     names: `step`, a tensor that counts on, and the kind's state tensors. Parameters without gradient are passed
 *     over. Returns nil, or, having changed nothing, an array of the parameters (from 1) whose state is missing or of
 *     another dtype or device, and has to be made first. `fresh` is a table: true at the places of parameters whose
 *     state holds nothing yet (kinds that do not count steps). With `keep` it returns nil and the two functions
 *     of bind/train/optim.h, for a graph, and the device leaves the step out where the tensor `unless` is not 0
 * set_options(kind, options)      the keys of the table are the options that the kind's steps read
 * states(kind)                    the names of the kind's state tensors, and of its scalars: two arrays
 * state_fits(state, param)        can a step use the state as it is: in the parameter's dtype, and on its device or in
 *     pinned memory of the host, where the device copies from and to by itself
 * offloads(device)                do the device's steps accept state in such memory?
 * needed(kind, group)             the names of the state tensors that a step with these options uses, and whether it
 *     counts steps
 * clip_grad_norm(params, max_norm, norm_type, error_if_nonfinite)   returns the norm before, a 0-dim tensor
 * clip_grad_value(params, clip_value)
 * unscale_grad(params, factor)    returns the number of gradients, and whether one was infinite or NaN
 * unscale_grad_there(params, factor, found)   with tensors of the device in place of the factor and the answer; returns
 *     their number, or, having changed nothing, nil where the gradients' device cannot do that
 *
 * Everything is read from the tables at each step, so that a script's changes to them count. */
#include <string.h>

#include "autograd/graph/graph.h"
#include "base/trace/counters.h"
#include "base/trace/trace.h"
#include "bind/lua/bind.h"
#include "bind/train/optim.h"
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
        if (!item->state[i] || !ah_optim_state_fits(item->state[i], item->param))
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

enum { KIND = 1, GROUP, PARAMS, STATE, FRESH, KEEP, UNLESS, MISSING };

static int optim_step(lua_State *L)
{
    enum ah_optim_kind kind = check_kind(L, KIND);
    for (int index = GROUP; index <= STATE; index++)
        luaL_checktype(L, index, LUA_TTABLE);
    lua_settop(L, MISSING);
    struct ah_optim_options options;
    ah_optim_read_options(L, GROUP, kind, &options);
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
    struct ah_trace_mark mark = ah_trace_begin(ah_optim_kinds[kind].name);
    bool keep = !missing && lua_toboolean(L, KEEP);
    if (keep && !lua_isnil(L, UNLESS))
        options.unless = ah_tensor_data(ah_check_tensor(L, UNLESS));
    if (keep)
        ah_optim_push_again(L, kind, needs, GROUP, STATE, item, count);
    int status = missing ? 0 : ah_optim_step(kind, &options, item, count);
    ah_trace_end(mark, AH_TRACE_OPTIMIZER, ah_optim_kinds[kind].name);
    ah_check(L, status);
    ah_counters_step();
    if (keep) {
        lua_pushnil(L);
        lua_insert(L, -3);
        return 3;
    }
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

static int optim_states(lua_State *L)
{
    const struct ah_optim_kind_info *info = &ah_optim_kinds[check_kind(L, 1)];
    push_list(L, info->state, AH_OPTIM_STATES);
    push_list(L, info->scalar, AH_OPTIM_SCALARS);
    return 2;
}

AH_LUA_VALUE(state_fits, lua_pushboolean, ah_optim_state_fits(ah_check_tensor(L, 1), ah_check_tensor(L, 2)))

static int optim_offloads(lua_State *L)
{
    const struct ah_device *device = ah_check_device(L, 1);
    lua_pushboolean(L, device->optim && device->optim->offloads);
    return 1;
}

static int set_options(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TTABLE);
    ah_optim_set_options(L, 2, check_kind(L, 1));
    return 0;
}

static int optim_needed(lua_State *L)
{
    enum ah_optim_kind kind = check_kind(L, 1);
    struct ah_optim_options options;
    luaL_checktype(L, 2, LUA_TTABLE);
    ah_optim_read_options(L, 2, kind, &options);
    unsigned needs = ah_optim_needs(kind, &options);
    lua_newtable(L);
    for (int i = 0, count = 0; i < AH_OPTIM_STATES; i++) {
        if (!(needs & 1u << i))
            continue;
        lua_pushstring(L, ah_optim_kinds[kind].state[i]);
        lua_rawseti(L, -2, ++count);
    }
    lua_pushboolean(L, (needs & AH_OPTIM_STEP) != 0);
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
AH_LUA_CALL(optim_stepped, ah_counters_step())

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

static int unscale_grad_there(lua_State *L)
{
    int count;
    struct ah_tensor **grad = check_gradients(L, "unscale_", &count);
    if (!ah_unscales_there(grad, count))
        return 0;
    ah_check(L, ah_unscale_grad_there(grad, count, ah_check_tensor(L, 2), ah_check_tensor(L, 3)));
    lua_pushinteger(L, count);
    return 1;
}

int ah_open_optim(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"set_options", set_options},
        {"states", optim_states},
        {"state_fits", state_fits},
        {"offloads", optim_offloads},
        {"needed", optim_needed},
        {"stepped", optim_stepped},
        {"clip_grad_norm", clip_grad_norm},
        {"clip_grad_value", clip_grad_value},
        {"unscale_grad", unscale_grad},
        {"unscale_grad_there", unscale_grad_there},
        {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_pushcclosure(L, optim_step, push_names(L));
    lua_setfield(L, -2, "step");
    return 1;
}
