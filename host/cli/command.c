/* What every command says of wrong usage. */
#include "cli/command.h"

#include <stdarg.h>
#include <stdio.h>

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
