/* Check whether the processors of a job are busy before it starts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Before a job of `ranks` ranks starts: one sentence on other jobs of this user that leave fewer processors than ranks,
 * or else on a load average beyond the machine's processors. False, and "", when there are enough. */
bool ah_busy_describe(int ranks, char *text, size_t room);
