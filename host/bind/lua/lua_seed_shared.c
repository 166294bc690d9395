/* For LuaJIT as a shared library: it finds this program's `syscall` before that of the C library, as all others do,
 * whose calls are passed on. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bind/lua/lua_seed.h"

static bool is_of_luajit(void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libluajit");
}

long syscall(long number, ...)
{
    static long (*next)(long, ...);
    long at[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        at[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_getrandom && is_of_luajit(__builtin_return_address(0)))
        return ah_lua_syscall(number, (void *)at[0], (size_t)at[1]);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    return next(number, at[0], at[1], at[2], at[3], at[4], at[5]);
}
