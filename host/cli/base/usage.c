/* Print wrong usage. */
#include "cli/base/usage.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/status/status.h"

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

int ah_refuse(const char *command, int status, const char *text)
{
    if (status != AH_ENOMEM)
        return ah_usage(command, "%s", text);
    fprintf(stderr, "accelhost %s: %s\n", command, text);
    return 1;
}
