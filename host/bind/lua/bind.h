/* The binding between Lua and C. Only host/bind and host/cli include lua.h.
 *
 * Errors: C code below returns a status; ah_raise is the one function that turns it into a Lua error, and is called
 * only when every C resource is owned by a userdata or freed. */
#pragma once

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "ops/dispatch/op.h"

struct ah_generator_object; /* bind/lua/generator.h */

/* Raise the text of the last failure, prefixed by the script line that called ("train.lua:12: ..."; frames of the
 * library itself are passed over). Never returns; typed int so that `return ah_raise(L, status)` reads well. */
int ah_raise(lua_State *L, int status);
/* The same with the string on top of the stack, which may be of any length. */
int ah_raise_top(lua_State *L);
/* Push nil and the text of the last failure; returns 2. */
int ah_push_error(lua_State *L);
/* ah_raise when status < 0, else the status. */
int ah_check(lua_State *L, int status);
/* ah_fail + ah_raise for argument errors found in the binding. */
int ah_raise_text(lua_State *L, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "train.lua:12": the innermost script line outside the library, "?" if there is none. The text lives in the
 * thread-local buffer until the next call. */
const char *ah_call_site(lua_State *L);

/* Tensors as userdata. */
struct ah_tensor *ah_to_tensor(lua_State *L, int index);    /* NULL when it is something else (or nil) */
bool ah_was_freed(lua_State *L, int index);                 /* is it a tensor that was freed? */
/* Raises "argument N: expected a tensor, got X", where X may be "a tensor that was freed". */
struct ah_tensor *ah_check_tensor(lua_State *L, int index);
struct ah_tensor *ah_opt_tensor(lua_State *L, int index);   /* nil or none: NULL */
/* Push a tensor whose one reference passes to Lua. NULL pushes nil. */
void ah_push_tensor(lua_State *L, struct ah_tensor *tensor);
/* Push a tensor that C keeps too (a gradient, a parameter held by an engine): retains it, and pushes the same
 * userdata each time, so identity and table keys work. */
void ah_push_shared_tensor(lua_State *L, struct ah_tensor *tensor);

/* A Generator (bind/lua/generator.h), borrowed; NULL for anything else. */
struct ah_generator_object *ah_to_generator(lua_State *L, int index);

/* Array part of a Lua table at `index` as integers; returns the count. Raises beyond `max` or on non-integers. */
int ah_check_ints(lua_State *L, int index, int64_t *out, int max, const char *what);
/* Length of the Lua array at `index` (positive); raises when it has a hole or, unless `named_ok`, named fields. */
int ah_check_array(lua_State *L, int index, const char *what, bool named_ok);
/* A value as messages show it: "number 3", "'abc'", "a tensor", "nothing". Lives until the next call of this thread. */
const char *ah_value_text(lua_State *L, int index);
enum ah_dtype ah_check_dtype(lua_State *L, int index);
/* The device of a name ("cpu", "cuda:1"), opened on first use; raises the error of ah_device_find. */
struct ah_device *ah_check_device(lua_State *L, int index);
void ah_push_dtype(lua_State *L, enum ah_dtype dtype); /* pushes its name, "float32" */

/* Define a function of Lua that returns one value, pushed by `push`; one that returns nothing; the same of a call that
 * can fail. Its arguments are read in the expression. */
#define AH_LUA_VALUE(function, push, expression)   \
    static int function(lua_State *L)              \
    {                                              \
        push(L, expression);                       \
        return 1;                                  \
    }
#define AH_LUA_CALL(function, expression)          \
    static int function(lua_State *L)              \
    {                                              \
        expression;                                \
        return 0;                                  \
    }
#define AH_LUA_CHECKED(function, expression) AH_LUA_CALL(function, ah_check(L, expression))

/* Set a field of the table on top of the stack. */
void ah_set_number(lua_State *L, const char *name, double value);

/* Options in one trailing table: reads field `name` of the table at `index` (nothing when the table is nil). */
double ah_opt_number(lua_State *L, int index, const char *name, double fallback);
int64_t ah_opt_int(lua_State *L, int index, const char *name, int64_t fallback);
bool ah_opt_flag(lua_State *L, int index, const char *name, bool fallback);
const char *ah_opt_string(lua_State *L, int index, const char *name, const char *fallback);
/* Raises on a key of the options table that is not in the NULL-ended list: "op: unknown option 'lrr' (known: ...)". */
void ah_check_options(lua_State *L, int index, const char *op, const char *const *known);

/* Openers of the tables under accelhost._C, listed in bind/lua/modules.def; each pushes one table. */
#define MODULE(name) int ah_open_##name(lua_State *L);
#include "bind/lua/modules.def"
#undef MODULE
