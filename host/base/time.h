/* Monotonic time. */
#ifndef AH_BASE_TIME_H
#define AH_BASE_TIME_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a host. */
int64_t ah_now_ns(void);

#endif
