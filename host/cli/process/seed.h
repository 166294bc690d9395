/* The seed of a run whose script does not call manual_seed. */
#pragma once

#include "comm/control/control_block.h"

/* Seed the generators of the process before a script runs: with ACCELHOST_SEED, else with the seed of the job, which
 * all ranks that a launcher has started on this machine share (`control block`; NULL: no job), else from the system's
 * entropy. AH_EINVAL when the variable is no integer from 0 to 2^53 - 1. */
int ah_cli_seed(const struct ah_control_block *control);
