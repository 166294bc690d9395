/* The script's position when a signal interrupts it: in a system call that does not return, in an op, in a loop that
 * LuaJIT has compiled and in which no hook runs.
 *
 * One Lua state per process is watched. All but ah_position_watch may be called in a signal handler. */
#pragma once

#include <stddef.h>

#include <lua.h>

/* Learn from now on which machine code belongs to which line. Call it near the beginning of main's stack. */
void ah_position_watch(lua_State *L);

/* Format the current line of a Lua state: "runs at train.lua:12". */
const char *ah_position_line(lua_State *L, char *text, size_t room);

/* "waits in read of '/x/fifo' at train.lua:9", "runs matmul at train.lua:7", "runs in compiled code at train.lua:12".
 * `context` is the handler's third argument. */
const char *ah_position_find(const void *context, char *text, size_t room);

/* Call `line` for each line of the traceback of the position found last (ah_position_find), if the stack may be read;
 * of `L` unless that is NULL. */
void ah_position_frames(lua_State *L, void (*line)(const char *text));
