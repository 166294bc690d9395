/* LuaJIT seeds the hash of its strings from the system, so `pairs` has another order in every process.
 * Here each process has the same seed: a script that iterates by `pairs` does the same in every rank, and in the next
 * run. The build of LuaJIT replaces `syscall`, which LuaJIT calls only for the seed, by this function (LUAJIT in the
 * Makefile); lua_seed_shared.c does it for a shared LuaJIT. */
#include "bind/lua/lua_seed.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/types.h>

long ah_lua_syscall(long number, ...)
{
    static const unsigned char seed[] = "accelhost: one order for all ranks.";
    if (number != SYS_getrandom) {
        errno = ENOSYS;
        return -1;
    }
    va_list args;
    va_start(args, number);
    unsigned char *to = va_arg(args, unsigned char *);
    size_t bytes = va_arg(args, size_t);
    va_end(args);
    for (size_t i = 0; i < bytes; i++)
        to[i] = seed[i % (sizeof seed - 1)];
    return (long)bytes;
}
