/* Loops over tables. The betas of LuaJIT 2.1, which Debian 12 and others have, compile `pairs` and `next` wrongly on
 * x86-64: a comparison may read a value again after that of the next key has replaced it, and a loop over a table ends
 * early once its compilation was abandoned. So these are functions in C, which LuaJIT does not compile: a `for` calls
 * any iterator but LuaJIT's own `next`. */
#include "bind/lua/pairs.h"

#include <string.h>

#include <lauxlib.h>
#include <luajit.h>

static int next_entry(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    if (lua_next(L, 1))
        return 2;
    lua_pushnil(L);
    return 1;
}

static int pairs_begin(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

void ah_pairs_open(lua_State *L)
{
    if (!strstr(LUAJIT_VERSION, "beta"))
        return;
    lua_pushcfunction(L, next_entry);
    lua_pushvalue(L, -1);
    lua_setglobal(L, "next");
    lua_pushcclosure(L, pairs_begin, 1);
    lua_setglobal(L, "pairs");
}
