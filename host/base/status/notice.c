/* Lines go to one function pointer. ACCELHOST_DEBUG is read at each call of ah_log_enabled: frequent callers cache the
 * result. */
#include "base/status/notice.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/printable.h"

static void (*notice_output)(const char *line);

void ah_notice_set_output(void (*output)(const char *line))
{
    notice_output = output;
}

void ah_notice(const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!notice_output)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ah_make_printable(line);
    notice_output(line);
}

void ah_notice_once(const char *format, ...)
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
        ah_notice("%s", line);
}

bool ah_log_enabled(const char *topic)
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
