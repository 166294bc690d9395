/* Describe a rank's current operation, from outside its process: for a peer that waits for it, for its launcher, for
 * any process that reads the control block. */
#pragma once

#include "comm/control/control_block.h"

/* "is stopped by a signal (kill -CONT 1234 continues it)", "runs at train.lua:12", "waits in read of '/x/fifo' at
 * train.lua:9"; "" when that is not known, or the rank is this process. Asks the rank by a signal, which it ignores
 * unless it answers, and waits for that at most `timeout_ms`. Returns text. */
const char *ah_rank_status(const struct ah_rank_entry *slot, int timeout_ms, char *text, size_t room);

/* The same of a rank whose pid here is `pid` (ah_jobs_pid). */
const char *ah_rank_status_of(const struct ah_rank_entry *slot, int pid, int timeout_ms, char *text, size_t room);
