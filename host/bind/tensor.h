/* The tensor class as Lua sees it: fields, plain methods, metamethods. Ops come from the table (bind/op.h), indexing
 * from bind/index.c. */
#ifndef AH_BIND_TENSOR_H
#define AH_BIND_TENSOR_H

#include "bind/bind.h"

/* Fill the metatable (stack index `metatable`), the method table and accelhost._C (`module`). */
void ah_tensor_open(lua_State *L, int metatable, int methods, int module);

/* t[key] and t[key] = value for numbers, tables and tensors; both return the count of results left on the stack. */
int ah_index_get(lua_State *L);
int ah_index_set(lua_State *L);

/* accelhost.tensor(data, options) */
int ah_tensor_from_lua(lua_State *L);

/* Run a one-output op and push its result. */
int ah_push_op(lua_State *L, enum ah_opid id, const struct ah_value *args, int count);

#endif
