/* CLOCK_MONOTONIC does not advance while the machine is suspended, so no deadline passes meanwhile. */
#include "base/trace/time.h"

#include <stdlib.h>
#include <time.h>

#include "base/status/status.h"

int64_t ah_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int ah_seconds_from_environment(const char *name, double fallback, int64_t *out_ns)
{
    const char *text = getenv(name);
    char *end = NULL;
    double seconds = text ? strtod(text, &end) : fallback;
    if (text && (end == text || *end || !(seconds >= 1e-9) || seconds > 1e9))
        return ah_fail(AH_EINVAL, "%s: expected seconds above 0, got '%s'", name, text);
    *out_ns = (int64_t)(seconds * 1e9);
    return 0;
}
