/* accelhost._C.autocast: blocks, and functions made in Lua that run in one precision as a whole. `type` is a type of
 * devices, "cpu" or "cuda".
 *
 * run(type, enabled?, dtype?, cache?, fn, ...)   call fn in a block
 * state(type)              enabled, dtype, cache of the innermost block
 * is_enabled(type?)        without a type: for any
 * set(type, enabled?, dtype?, cache?)   change the innermost block; nil leaves a value
 * lower_dtype(tensor)      the dtype to which matmul casts the tensor within a block; nil where it does not
 * lower(tensor)            the tensor as an operand of matmul: cast to that dtype, of weights the cached cast
 * capture()                all of that as a string, for run_as(captured, fn, ...) and restore(captured)
 * clear()                  drop the cached casts
 * call(rule, rule of cuda, fn, ...)   fn with its tensors by the rule of their device ("lower": in the block's dtype,
 *                          "float32", "widest", "own": unchanged) and autocast off, or "none": as it is */
#include <string.h>

#include "bind/lua/bind.h"
#include "ops/dispatch/autocast.h"

static enum ah_autocast_kind check_kind(lua_State *L, int index)
{
    enum ah_autocast_kind kind = ah_autocast_kind(luaL_checkstring(L, index));
    luaL_argcheck(L, kind < AH_AUTOCAST_KINDS, index, "expected 'cpu' or 'cuda'");
    return kind;
}

/* (type, enabled, dtype, cache) */
static void read_state(lua_State *L, struct ah_autocast *state)
{
    enum ah_autocast_kind kind = check_kind(L, 1);
    *state = ah_autocast;
    if (!lua_isnoneornil(L, 2))
        state->enabled = (state->enabled & ~(1u << kind)) | (unsigned)lua_toboolean(L, 2) << kind;
    if (!lua_isnoneornil(L, 3))
        state->dtype[kind] = ah_check_dtype(L, 3);
    if (!lua_isnoneornil(L, 4))
        state->cache = lua_toboolean(L, 4);
}

/* Call the function below its arguments, from stack index `at` on; the results replace them. */
static int call_at(lua_State *L, int at)
{
    return lua_pcall(L, lua_gettop(L) - at, LUA_MULTRET, 0);
}

static int run_block(lua_State *L, const struct ah_autocast *block, int fn)
{
    luaL_checkany(L, fn);
    struct ah_autocast before = ah_autocast_enter(block);
    int status = call_at(L, fn);
    ah_autocast_leave(&before);
    return status ? lua_error(L) : lua_gettop(L) - fn + 1;
}

/* run(type, enabled, dtype, cache, fn, ...) */
static int autocast_run(lua_State *L)
{
    struct ah_autocast block;
    read_state(L, &block);
    return run_block(L, &block, 5);
}

static int autocast_state(lua_State *L)
{
    enum ah_autocast_kind kind = check_kind(L, 1);
    lua_pushboolean(L, ah_autocast.enabled >> kind & 1);
    ah_push_dtype(L, ah_autocast.dtype[kind]);
    lua_pushboolean(L, ah_autocast.cache);
    return 3;
}

static int autocast_set(lua_State *L)
{
    struct ah_autocast next;
    read_state(L, &next);
    ah_autocast_set(&next);
    return 0;
}

static int autocast_capture(lua_State *L)
{
    lua_pushlstring(L, (const char *)&ah_autocast, sizeof ah_autocast);
    return 1;
}

static struct ah_autocast check_captured(lua_State *L)
{
    struct ah_autocast block;
    size_t bytes;
    const char *from = luaL_checklstring(L, 1, &bytes);
    luaL_argcheck(L, bytes == sizeof block, 1, "expected a result of capture()");
    memcpy(&block, from, sizeof block);
    return block;
}

/* run_as(captured, fn, ...) */
static int run_as(lua_State *L)
{
    struct ah_autocast block = check_captured(L);
    return run_block(L, &block, 2);
}

static int autocast_restore(lua_State *L)
{
    struct ah_autocast block = check_captured(L);
    ah_autocast_set(&block);
    return 0;
}

static int autocast_clear(lua_State *L)
{
    (void)L;
    ah_autocast_clear();
    return 0;
}

static int is_enabled(lua_State *L)
{
    unsigned asked = lua_isnoneornil(L, 1) ? ~0u : 1u << check_kind(L, 1);
    lua_pushboolean(L, (ah_autocast.enabled & asked) != 0);
    return 1;
}

static int lower_dtype(lua_State *L)
{
    enum ah_dtype dtype;
    if (!ah_autocast_lowers(ah_check_tensor(L, 1), &dtype))
        return 0;
    ah_push_dtype(L, dtype);
    return 1;
}

static int autocast_lower(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *cast;
    enum ah_dtype dtype;
    lua_settop(L, 1);
    if (!ah_autocast_lowers(tensor, &dtype) || dtype == tensor->dtype)
        return 1;
    ah_check(L, ah_autocast_tensor(&cast, tensor, ah_autocast_leading(AH_AUTOCAST_KINDS, tensor), dtype));
    ah_push_shared_tensor(L, cast); /* a kept cast is handed out again */
    ah_tensor_release(cast);
    return 1;
}

/* Do something to each tensor among the arguments from `first` on, in plain tables of options or tensors too. */
static void each_tensor(lua_State *L, int first, void (*act)(const struct ah_tensor *tensor, void *context),
                        void *context)
{
    int last = lua_gettop(L);
    for (int i = first; i <= last; i++) {
        struct ah_tensor *tensor = ah_to_tensor(L, i);
        if (tensor)
            act(tensor, context);
        if (!lua_istable(L, i))
            continue;
        if (lua_getmetatable(L, i)) {
            lua_pop(L, 1);
            continue;
        }
        for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
            if ((tensor = ah_to_tensor(L, lua_gettop(L))))
                act(tensor, context);
    }
}

struct cast {
    enum ah_autocast_kind kind;
    enum ah_dtype dtype;
};

static void find_kind(const struct ah_tensor *tensor, void *context)
{
    struct cast *cast = context;
    cast->kind = ah_autocast_leading(cast->kind, tensor);
}

static void find_widest(const struct ah_tensor *tensor, void *context)
{
    struct cast *cast = context;
    cast->dtype = ah_autocast_wider(cast->dtype, tensor, cast->kind);
}

/* Replace the tensor at `index` by its cast. */
static void cast_at(lua_State *L, int index, const struct cast *as)
{
    struct ah_tensor *tensor = ah_to_tensor(L, index), *cast;
    if (!tensor)
        return;
    ah_check(L, ah_autocast_tensor(&cast, tensor, as->kind, as->dtype));
    if (cast == tensor) {
        ah_tensor_release(cast);
        return;
    }
    ah_push_tensor(L, cast);
    lua_replace(L, index);
}

/* A plain table of options or tensors: a copy with its tensors cast. */
static void cast_table(lua_State *L, int index, const struct cast *as)
{
    lua_newtable(L);
    int copy = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        cast_at(L, copy + 2, as);
        lua_pushvalue(L, copy + 1);
        lua_insert(L, copy + 2);
        lua_rawset(L, copy);
    }
    lua_replace(L, index);
}

static void cast_all(lua_State *L, int first, const struct cast *as)
{
    int last = lua_gettop(L);
    for (int i = first; i <= last; i++) {
        if (!lua_istable(L, i))
            cast_at(L, i, as);
        else if (!lua_getmetatable(L, i))
            cast_table(L, i, as);
        else
            lua_pop(L, 1);
    }
}

enum { RULE = 1, CUDA_RULE, FN };

/* call(rule, rule of cuda, fn, ...) */
static int autocast_call(lua_State *L)
{
    struct cast cast = {.kind = AH_AUTOCAST_KINDS};
    each_tensor(L, FN + 1, find_kind, &cast);
    bool listed = cast.kind < AH_AUTOCAST_KINDS;
    const char *rule = listed ? luaL_checkstring(L, cast.kind == AH_AUTOCAST_CUDA ? CUDA_RULE : RULE) : "none";
    listed = strcmp(rule, "none") != 0;
    if (listed && strcmp(rule, "own") != 0) {
        cast.dtype = !strcmp(rule, "float32") ? AH_F32 : ah_autocast.dtype[cast.kind];
        if (!strcmp(rule, "widest"))
            each_tensor(L, FN + 1, find_widest, &cast);
        cast_all(L, FN + 1, &cast);
    }
    unsigned before = ah_autocast_switch(listed ? 0 : ah_autocast.enabled);
    int status = call_at(L, FN);
    ah_autocast_switch(before);
    return status ? lua_error(L) : lua_gettop(L) - FN + 1;
}

int ah_open_autocast(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"run", autocast_run},         {"state", autocast_state},     {"set", autocast_set},
        {"clear", autocast_clear},     {"is_enabled", is_enabled},    {"lower_dtype", lower_dtype},
        {"lower", autocast_lower},     {"capture", autocast_capture}, {"run_as", run_as},
        {"restore", autocast_restore}, {"call", autocast_call},       {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
