/* The tensor class as Lua sees it: fields, plain methods, metamethods. Ops are defined by the table (bind/tensor/op.h),
 * indexing from bind/tensor/index.c. */
#pragma once

#include "bind/lua/bind.h"
#include "bind/lua/function.h"

struct ah_node; /* autograd/graph/graph.h */

/* Fill the metatable (stack index `metatable`), the method table and accelhost._C (`module`). */
void ah_tensor_open(lua_State *L, int metatable, int methods, int module);

/* t.name, the metamethod __index (upvalue 1: the table of methods), and t.name = value, the metamethod __newindex;
 * other keys than names go to ah_index_get and ah_index_set. */
int ah_field_get(lua_State *L);
int ah_field_set(lua_State *L);
/* set_data(t, u), as t.data = u: t adopts the other's storage, shape and dtype; identity and history stay. */
int ah_set_data(lua_State *L);

/* "MulBackward" for an op named mul, as PyTorch prints it; 96 bytes are enough. */
void ah_node_label(const struct ah_node *node, char *text, size_t size);

/* accelhost.newaxis, which adds a dim of size 1 where it is an item of a key. */
void ah_push_newaxis(lua_State *L);
/* t[key] and t[key] = value for numbers, tables and tensors; both return the count of results left on the stack. */
int ah_index_get(lua_State *L);
int ah_index_set(lua_State *L);

/* The tensor itself where the host can read it, else a copy there, which stays on the stack. */
struct ah_tensor *ah_host_values(lua_State *L, struct ah_tensor *tensor);

/* Entries of the metatable of tensors, in addition to __index. */
extern const luaL_Reg ah_tensor_metamethods[];

/* Methods: to, cpu, cuda, casts by name, pinned memory. */
extern const struct ah_function ah_tensor_move_methods[];

/* accelhost.tensor(data, options) */
int ah_tensor_from_lua(lua_State *L);
