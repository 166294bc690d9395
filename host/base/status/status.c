/* One text per thread, which the next failure overwrites. */
#include "base/status/status.h"

#include <stdio.h>
#include <string.h>

#include "base/status/printable.h"

static _Thread_local char error_text[2048];

int ah_vfail(int code, const char *format, va_list args)
{
    /* Formatted aside first: an argument may be the old text itself. */
    char text[sizeof error_text];
    vsnprintf(text, sizeof text, format, args);
    ah_make_printable(text);
    memcpy(error_text, text, sizeof text);
    return code;
}

int ah_fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ah_vfail(code, format, args);
    va_end(args);
    return code;
}

int ah_fail_prefix(int code, const char *format, ...)
{
    char prefix[512];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return ah_fail(code, "%s: %s", prefix, error_text);
}

const char *ah_error_text(void)
{
    return error_text;
}

int ah_fail_named(int code, const char *name)
{
    static const char bare[] = "out of memory";
    return code == AH_ENOMEM && !strncmp(error_text, bare, sizeof bare - 1) ? ah_fail_prefix(code, "%s", name) : code;
}
