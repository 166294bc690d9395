#include "cli/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ah_check_script(const char *command, const char *path)
{
    struct stat info;
    if (stat(path, &info) || access(path, R_OK))
        return ah_usage(command, "cannot read '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return ah_usage(command, "expected a script, but '%s' is a directory", path);
    return 0;
}

int ah_usage(const char *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "accelhost %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nTry 'accelhost %s --help'.\n", command);
    return 2;
}
