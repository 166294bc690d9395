/* `next` and `pairs` for a LuaJIT that compiles its own wrongly. */
#pragma once

#include <lua.h>

/* Add them to the globals of a new state where they are needed. */
void ah_pairs_open(lua_State *L);
