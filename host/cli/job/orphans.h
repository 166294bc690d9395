/* Processes that the ranks of a job have started and that outlive them.
 *
 * Known by the job's mark in their environment (AH_JOB_MARK, which children inherit) or by their process group, so one
 * in a new session is found too. Reads /proc; without /proc none are found. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "comm/join/rank.h"

/* Send a signal (0: only count them) to each process of the job `mark`, a path of jobs, each ended by a slash: a job
 * that a rank has launched belongs to the outer one too. `groups` are the process groups of the ranks, whose leaders
 * are not counted. Returns their number; `names` (may be NULL) gets the first ones as "sleep (pid 12)". */
int ah_orphans_signal(const char *mark, const pid_t *groups, int count, int number, char *names, size_t room);
