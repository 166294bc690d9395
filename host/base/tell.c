/* One function pointer, and a look at ACCELHOST_DEBUG each time: whoever asks often keeps the answer. */
#include "base/tell.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*show)(const char *line);

void ah_tell_to(void (*sink)(const char *line))
{
    show = sink;
}

void ah_tell(const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!show)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    show(line);
}

bool ah_tells_of(const char *topic)
{
    const char *at = getenv("ACCELHOST_DEBUG");
    size_t length = strlen(topic);
    while (at && *at) {
        size_t word = strcspn(at, ",");
        if (word == length && !strncmp(at, topic, length))
            return true;
        at += word + (at[word] == ',');
    }
    return false;
}
