/* Ranks of a group that make different calls where one is to be made. */
#pragma once

#include "comm/group/backend.h"

/* Compare the call records of the ranks that have issued the call; AH_EMISMATCH with both call sites. */
int ah_mismatch_check(struct ah_group *group, uint32_t sequence);
