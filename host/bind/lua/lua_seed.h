/* Replaces LuaJIT's `syscall`, by which it reads random bytes: returns the same bytes always. */
#pragma once

/* Fills for SYS_getrandom; -1 and ENOSYS for any other number. */
long ah_lua_syscall(long number, ...);
