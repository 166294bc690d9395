/* A library to be preloaded: from the moment on in which the file $FAIL_ARMED is there, the $FAIL_AT-th of the calls by
 * which files are written fails for want of room, or with FAIL_KILL ends the process. It prints the call's name. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(const char *call)
{
    static atomic_int armed, count;
    const char *file = getenv("FAIL_ARMED"), *at = getenv("FAIL_AT");
    if (!armed && (!file || !at || access(file, F_OK)))
        return 0;
    armed = 1;
    if (++count != atoi(at))
        return 0;
    dprintf(STDERR_FILENO, "[%s]\n", call);
    if (getenv("FAIL_KILL"))
        _exit(137);
    errno = ENOSPC;
    return 1;
}

#define WRAP(result, name, arguments, values)                             \
    result name arguments                                                 \
    {                                                                     \
        static result(*real) arguments;                                   \
        if (!real)                                                        \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                    \
        return fails(#name) ? (result)-1 : real values;                   \
    }

ssize_t write(int file, const void *bytes, size_t count)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "write");
    return file > STDERR_FILENO && fails("write") ? -1 : real(file, bytes, count);
}

int openat(int folder, const char *path, int flags, ...)
{
    static int (*real)(int, const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "openat");
    bool writes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    return writes && fails("openat") ? -1 : real(folder, path, flags, mode);
}

WRAP(int, fsync, (int file), (file))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))
WRAP(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
