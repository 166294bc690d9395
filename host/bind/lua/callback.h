/* Functions of the script that the engine calls: hooks, and nodes whose rule is a Lua function. */
#pragma once

#include "bind/lua/bind.h"

/* Add the functions that make callbacks to the table on top of the stack (accelhost._C.autograd). */
void ah_open_callbacks(lua_State *L);

/* retain_grad(tensor) -> tensor */
int ah_lua_retain_grad(lua_State *L);

/* Return the tensors of the value at `index` (one tensor or a Lua array; false for an absent one) in memory owned by
 * Lua, left on the stack. */
struct ah_tensor **ah_check_tensors(lua_State *L, int index, int *count, bool absent_ok, const char *what);
