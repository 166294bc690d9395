/* The trampoline: every op of the table as a Lua function. */
#pragma once

#include "bind/lua/bind.h"

/* Let accelhost._C (at stack index `module`) and the method table (at `methods`) find the ops (bind/tensor/op_names.c).
 * */
void ah_ops_open(lua_State *L, int module, int methods);

/* Push the function of an op schema; the method form checks that its first argument, before the colon, is a tensor. */
void ah_push_op_function(lua_State *L, const struct ah_op *op, bool method, bool inplace);

/* Run a one-output op and push its result. */
int ah_push_op(lua_State *L, enum ah_opid id, const struct ah_value *args, int count);

/* Return the op of the function at `index`, NULL when it is none. */
const struct ah_op *ah_to_op(lua_State *L, int index);

/* A Lua value (number, boolean, tensor) as an operand of an op; raises for anything else. */
struct ah_value ah_check_operand(lua_State *L, int index, const char *op);
