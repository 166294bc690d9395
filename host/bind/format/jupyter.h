/* The kernel of a notebook in Lua: see accelhost._C.jupyter (jupyter.c). */
#pragma once

#include <lua.h>

/* Open the plugin and its Lua modules, and store accelhost._C.jupyter. AH_EINVAL where it is not installed. */
int ah_jupyter_bind(lua_State *L);
