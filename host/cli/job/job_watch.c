/* Checks once a second or sooner, which a user would otherwise make with ps: nothing here ends a job. */
#include <stdio.h>

#include "cli/job/job_state.h"

static void watch_stops(struct ah_job *job)
{
    for (int r = 0; r < job->size; r++)
        if (ah_rank_process_look_stopped(&job->rank[r]) && !job->suspended)
            ah_job_notice(job, "rank %d was stopped by a signal (kill -CONT %d continues it)\n",
                          job->first + r, (int)job->rank[r].pid);
}

static void watch_starts(struct ah_job *job)
{
    bool missing[AH_MAX_RANKS] = {false};
    char ranks[512];
    int count = 0;
    for (int r = 0; r < job->size; r++) {
        missing[r] = job->rank[r].running && !atomic_load(&ah_job_slot(job, r)->pid);
        count += missing[r];
    }
    job->reported_missing = true;
    if (!count)
        return;
    ah_job_list_ranks(job, missing, ranks, sizeof ranks);
    ah_job_notice(job, "not started after %.3g s: %s\n", (double)job->stall_warning_ns / 1e9, ranks);
}

static void watch_ends(struct ah_job *job)
{
    bool running[AH_MAX_RANKS] = {false};
    char ranks[512], last[192] = "";
    int some = -1, count = 0;
    for (int r = 0; r < job->size; r++) {
        running[r] = job->rank[r].running;
        count += running[r];
        some = running[r] ? r : some;
    }
    if (count == 1)
        ah_job_last_collective(job, some, last, sizeof last);
    ah_job_list_ranks(job, running, ranks, sizeof ranks);
    ah_job_notice(job, "still running %.3g s after the others ended: %s%s\n",
                  (double)job->stall_warning_ns / 1e9, ranks, last);
    job->reported_alone = true;
}

void ah_job_watch(struct ah_job *job, int64_t now)
{
    watch_stops(job);
    if (job->phase != AH_JOB_RUNNING)
        return;
    if (!job->reported_missing && now > job->started_ns + job->stall_warning_ns)
        watch_starts(job);
    if (!job->reported_alone && job->alone_ns >= 0 && now > job->alone_ns + job->stall_warning_ns)
        watch_ends(job);
}

int64_t ah_job_next_watch(const struct ah_job *job, int64_t now)
{
    double interval = job->options.monitor_interval;
    int64_t most = interval > 0 ? (int64_t)(interval * 1e9) : 1000000000;
    return now + (job->stall_warning_ns < most ? job->stall_warning_ns : most);
}
