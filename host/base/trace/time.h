/* Monotonic time, and times that the environment sets. */
#pragma once

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a host. */
int64_t ah_now_ns(void);

/* The seconds that a variable of the environment holds, else `fallback`, in nanoseconds; AH_EINVAL for another text. */
int ah_seconds_from_environment(const char *name, double fallback, int64_t *out_ns);
