/* The jobs of this user that run on this host, found by their control blocks: memfds that the launchers (and scripts
 * that run alone) hold open, found through /proc. Nothing is registered, so nothing can remain, and other users have no
 * access. */
#pragma once

#include "comm/control/control_block.h"

struct ah_seen_job {
    struct ah_control_block *control; /* read only; ah_control_close unmaps it */
    int pid;                /* of the launcher, or of the script that runs alone */
    int holder;             /* of a process that has the control block open */
};

/* List up to `most` jobs, by pid; return their number. */
int ah_jobs_see(struct ah_seen_job *jobs, int most);

/* Return the pid of a rank's process, in this process's PID namespace; 0 when it has none here. */
int ah_jobs_pid(const struct ah_seen_job *job, int rank);

/* List the ranks that a rank waits for, in a collective or for a message, in waited[]; return their number. 0 also when
 * any rank's message would do. */
int ah_jobs_waited(const struct ah_control_block *control, int rank, int *waited);

/* Does the rank wait in a collective now? */
bool ah_jobs_waits(const struct ah_control_block *control, int rank);

/* Return the message that a rank waits for, NULL if it waits for none. */
const struct ah_awaited *ah_jobs_awaited(const struct ah_control_block *control, int rank);

/* List the members of the group of its latest collective in member[]; return their number. */
int ah_jobs_members(const struct ah_control_block *control, int rank, int *member);
