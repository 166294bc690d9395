/* Replaces LuaJIT's `syscall`, by which it reads random bytes: returns the same bytes always. */
#ifndef AH_BIND_LUA_SEED_H
#define AH_BIND_LUA_SEED_H

/* Fills for SYS_getrandom; -1 and ENOSYS for any other number. */
long ah_lua_syscall(long number, ...);

#endif
