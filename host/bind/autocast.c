/* accelhost._C.autocast: blocks, and functions made in Lua that run in one precision as a whole.
 *
 * run(enabled?, dtype?, cache?, fn, ...)   call fn in a block
 * state(), is_enabled()    enabled, dtype, cache of the innermost block
 * set(enabled?, dtype?, cache?)   change what runs now; nil leaves a value
 * clear()                  forget the kept casts
 * call(rule, fn, ...)      fn with its tensors ("lower": in the block's dtype, "float32", "own") and autocast off */
#include <string.h>

#include "bind/bind.h"
#include "ops/autocast.h"

static void read_state(lua_State *L, int index, struct ah_autocast *state)
{
    *state = ah_autocast;
    if (!lua_isnoneornil(L, index))
        state->enabled = lua_toboolean(L, index);
    if (!lua_isnoneornil(L, index + 1))
        state->dtype = ah_check_dtype(L, index + 1);
    if (!lua_isnoneornil(L, index + 2))
        state->cache = lua_toboolean(L, index + 2);
}

/* Call the function below its arguments, from stack index `at` on; the results take their place. */
static int call_at(lua_State *L, int at)
{
    return lua_pcall(L, lua_gettop(L) - at, LUA_MULTRET, 0);
}

enum { ENABLED = 1, DTYPE, CACHE, FN };

/* run(enabled, dtype, cache, fn, ...) */
static int run(lua_State *L)
{
    struct ah_autocast block;
    read_state(L, ENABLED, &block);
    luaL_checkany(L, FN);
    struct ah_autocast before = ah_autocast_enter(&block);
    int status = call_at(L, FN);
    ah_autocast_leave(&before);
    return status ? lua_error(L) : lua_gettop(L) - FN + 1;
}

static int state(lua_State *L)
{
    lua_pushboolean(L, ah_autocast.enabled);
    ah_push_dtype(L, ah_autocast.dtype);
    lua_pushboolean(L, ah_autocast.cache);
    return 3;
}

static int set(lua_State *L)
{
    struct ah_autocast next;
    read_state(L, ENABLED, &next);
    ah_autocast_set(&next);
    return 0;
}

static int clear(lua_State *L)
{
    (void)L;
    ah_autocast_clear();
    return 0;
}

static int is_enabled(lua_State *L)
{
    lua_pushboolean(L, ah_autocast.enabled);
    return 1;
}

/* Put the cast of the tensor at `index` there. */
static void cast_at(lua_State *L, int index, enum ah_autocast_rule rule)
{
    struct ah_tensor *tensor = ah_to_tensor(L, index), *cast;
    if (!tensor)
        return;
    ah_check(L, ah_autocast_tensor(&cast, tensor, rule));
    if (cast == tensor) {
        ah_tensor_release(cast);
        return;
    }
    ah_push_tensor(L, cast);
    lua_replace(L, index);
}

/* A plain table of options or tensors: a copy with its tensors cast. */
static void cast_table(lua_State *L, int index, enum ah_autocast_rule rule)
{
    lua_newtable(L);
    int copy = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        cast_at(L, copy + 2, rule);
        lua_pushvalue(L, copy + 1);
        lua_insert(L, copy + 2);
        lua_rawset(L, copy);
    }
    lua_replace(L, index);
}

/* call(rule, fn, ...) */
static int call(lua_State *L)
{
    const char *word = luaL_checkstring(L, 1);
    enum ah_autocast_rule rule = !strcmp(word, "lower") ? AH_AUTOCAST_LOWER : AH_AUTOCAST_FLOAT;
    int last = strcmp(word, "own") ? lua_gettop(L) : 0;
    for (int i = 3; i <= last; i++) {
        if (lua_istable(L, i) && !lua_getmetatable(L, i))
            cast_table(L, i, rule);
        else if (lua_istable(L, i))
            lua_pop(L, 1);
        else
            cast_at(L, i, rule);
    }
    bool before = ah_autocast_switch(false);
    int status = call_at(L, 2);
    ah_autocast_switch(before);
    return status ? lua_error(L) : lua_gettop(L) - 1;
}

int ah_open_autocast(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"run", run},     {"state", state}, {"set", set}, {"clear", clear}, {"is_enabled", is_enabled},
        {"call", call},   {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
