/* `next` and `pairs` for a LuaJIT that compiles its own wrongly. */
#ifndef AH_BIND_WALK_H
#define AH_BIND_WALK_H

#include <lua.h>

/* Add them to the globals of a new state where they are needed. */
void ah_walk_open(lua_State *L);

#endif
