/* C functions of the public surface, other than ops: checked against a signature before they run.
 *
 * A signature is written as in the op table: "input:T, dim:i?". Letters: those of ops/dispatch/op.h, and besides F a
 * function, G a Generator, * any value; ? after a letter lets the argument be absent or nil. More arguments than the
 * signature names are an error. The function itself may then rely on types and counts, not on ranges. */
#pragma once

#include "bind/lua/bind.h"

struct ah_function {
    const char *name;
    lua_CFunction call;
    const char *signature;
};

/* Store the functions of a NULL-ended list in the table at stack index `table`. `list` must live as long as the state.
 * A method whose first argument is not its object raises an error with the right call. */
void ah_set_functions(lua_State *L, int table, const struct ah_function *list);
void ah_set_methods(lua_State *L, int table, const struct ah_function *list);
/* Push a new table of these functions; returns 1. */
int ah_new_library(lua_State *L, const struct ah_function *list);

/* Is the value at `index` a table of named arguments? `empty`: the answer for an empty table. */
bool ah_is_named(lua_State *L, int index, bool empty);

/* Raise "NAME: expected a tensor before it ..." for a method that was called with something else as its first value. */
int ah_raise_not_method(lua_State *L, const char *name, const char *wanted);

/* Name and signature of the function at `index` when it is one of these, NULL otherwise. */
const struct ah_function *ah_to_function(lua_State *L, int index);
