/* A process that survives the one that started a job, however that is killed, and then kills the job's remaining
 * processes.
 *
 * It sleeps on a socket until that process has ended. It holds none of its descriptors, and blocks every signal but
 * SIGKILL. */
#pragma once

#include <sys/types.h>

struct ah_reaper {
    pid_t pid;
    int socket; /* its end here; -1 without a reaper */
};

/* For the job with this mark (cli/job/orphans.h). */
int ah_reaper_start(struct ah_reaper *reaper, const char *mark);
/* The group of another rank. */
void ah_reaper_add(struct ah_reaper *reaper, pid_t group);
/* Remove the group of a rank that has ended and is replaced. */
void ah_reaper_remove(struct ah_reaper *reaper, pid_t group);
/* The job has ended and left nothing. */
void ah_reaper_close(struct ah_reaper *reaper);
