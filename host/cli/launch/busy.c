/* Ranks of other jobs are counted on their control blocks. The load average is that of the whole machine, so it is
 * compared with the machine's processors, not with this process's: in a container others use the rest. */
#include "cli/launch/busy.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "comm/control/jobs.h"

enum { JOBS = 64 };

static int busy_ranks(struct ah_control_block *control)
{
    int running = 0;
    for (int r = 0; r < control->size; r++)
        running += ah_control_is_local(control, r) && atomic_load(&ah_rank_entry(control, r)->state) == AH_RANK_RUNNING;
    return running;
}

/* The ranks of all jobs here; one job's process into *pid. */
static int busy_others(int *pid)
{
    struct ah_seen_job jobs[JOBS];
    int count = ah_jobs_see(jobs, JOBS), ranks = 0;
    for (int i = 0; i < count; i++) {
        int running = busy_ranks(jobs[i].control);
        *pid = running ? jobs[i].pid : *pid;
        ranks += running;
        ah_control_close(jobs[i].control);
    }
    return ranks;
}

bool ah_busy_describe(int ranks, char *text, size_t room)
{
    double load;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int processors = ah_cpu_count(), pid = 0, others = busy_others(&pid);
    text[0] = 0;
    if (others && others + ranks > processors)
        snprintf(text, room, "%d rank%s of your other jobs (pid %d; accelhost top) and %d of this one share %d "
                 "processor%s", others, others == 1 ? "" : "s", pid, ranks, processors, processors == 1 ? "" : "s");
    else if (getloadavg(&load, 1) == 1 && load > (double)online)
        snprintf(text, room, "the machine is busy before this job starts: load average %.1f, %ld processor%s", load,
                 online, online == 1 ? "" : "s");
    return text[0] != 0;
}
