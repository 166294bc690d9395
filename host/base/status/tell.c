/* Lines go to one function pointer. ACCELHOST_DEBUG is read at each call of ah_tells_of: frequent callers cache the
 * result. */
#include "base/status/tell.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/printable.h"

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
    ah_make_printable(line);
    show(line);
}

void ah_tell_once(const char *format, ...)
{
    enum { LINES = 256 };
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t shown[LINES];
    static size_t count;
    char line[1024];
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (const char *at = line; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    pthread_mutex_lock(&mutex);
    bool known = false;
    for (size_t i = 0; i < LINES && i < count; i++)
        known |= shown[i] == hash;
    if (!known)
        shown[count++ % LINES] = hash;
    pthread_mutex_unlock(&mutex);
    if (!known)
        ah_tell("%s", line);
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
