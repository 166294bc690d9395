/* JSON and Lua values, by jansson.
 *
 * Objects and arrays are tables, null is a light userdata of NULL; an empty array's table has the caller's metatable,
 * which identifies it. Numbers are doubles: an integer beyond 2^53 is rounded, as in JavaScript. Functions raise only
 * when Lua runs out of memory, without a leak. */
#pragma once

#include <lua.h>
#include <stddef.h>

/* Push the value of a whole text; `arrays` is the stack index of empty arrays' metatable. AH_EINVAL reports line and
 * column of the error: no JSON, a key twice in an object, deeper than 2048. */
int ah_json_read(lua_State *L, const char *text, size_t bytes, int arrays);

/* Push the value at `index` as text: on one line when `indent` is 0, else that many spaces a level; keys are sorted,
 * numbers as short as they read back. AH_EINVAL reports the place of a value without JSON: a table with holes or
 * with names and items, keys that are no strings, NaN and infinity, bytes that are no UTF-8, other types, a table in
 * itself. */
int ah_json_write(lua_State *L, int index, int arrays, int indent);
