/* The kernel hands the path of execve to a program (AT_EXECFN), which may be relative to the folder at that time. */
#include "base/process/program.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

bool ah_program_path(char *path, size_t room)
{
    char resolved[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", path, room - 1);
    path[bytes > 0 ? bytes : 0] = 0;
    if (bytes > 0)
        return (size_t)bytes < room - 1;
    const char *started = (const char *)(uintptr_t)getauxval(AT_EXECFN);
    if (started && realpath(started, resolved) && (size_t)snprintf(path, room, "%s", resolved) < room)
        return true;
    path[0] = 0;
    return false;
}
