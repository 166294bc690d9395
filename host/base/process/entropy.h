/* Seeds from the system's entropy. Not a source of secrets. */
#pragma once

#include <stdint.h>

/* Draw a seed below 2^46, so that Lua prints all its digits; from the clock where the system has no getrandom. */
uint64_t ah_entropy_seed(void);
