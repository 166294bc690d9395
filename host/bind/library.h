/* The Lua state of a rank: opening the library, loading chunks, tracebacks. For main and the commands. */
#pragma once

#include <stdbool.h>

#include <lua.h>

/* Chunk names of the library start with this, so that messages can pass over its frames. */
#define AH_LIBRARY_CHUNK "=accelhost/"

bool ah_is_library_chunk(const char *source);

/* Open LuaJIT's libraries, accelhost._C and the embedded modules in `L`. With ACCELHOST_LUA=DIR modules are read
 * from that checkout's lua/ folder instead of the binary. */
void ah_library_open(lua_State *L);

struct ah_embedded;

/* Have `require` find a plugin's modules too, in every state: a table that is ended by a NULL name and stays. */
void ah_library_add(const struct ah_embedded *modules);

/* Message handler for lua_pcall: the error as text, whatever value it was, with a hint where a method was called with
 * '.' and a traceback of script frames (the library's folded), printable (base/status/printable.h). */
int ah_traceback(lua_State *L);

/* Set the function at which tracebacks end: its callers are not part of the script. */
void ah_traceback_end_at(lua_CFunction function);

/* Append the remedy to the message on top of the stack, if one is known (lua/accelhost/util/hints). The result is
 * printable. */
void ah_explain(lua_State *L);
