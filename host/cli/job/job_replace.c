/* Replace the process of a rank that a signal has killed: the same rank, pipes and rank entry of the control block,
 * where its peers see the replacement and wait. Invariant: the entry is marked before the new process exists, and a
 * rank that cannot be replaced ends the job as it would without this. */
#include <stdio.h>

#include "base/status/status.h"
#include "base/trace/time.h"
#include "cli/base/syscalls.h"
#include "cli/job/job_state.h"

static bool may_replace(const struct ah_job *job, int rank)
{
    const struct ah_rank_process *process = &job->rank[rank];
    return process->signal && !process->killed && job->options.recovers && job->phase == AH_JOB_RUNNING &&
           job->replaced < job->options.replacements;
}

static void note_loss(struct ah_job *job, int rank)
{
    struct ah_loss *loss = &job->loss[rank];
    if (loss->pid) {
        loss->more++;
        return;
    }
    *loss = (struct ah_loss){.pid = job->rank[rank].pid, .signal = job->rank[rank].signal, .died_ns = ah_now_ns()};
    job->returning++;
}

bool ah_job_replace(struct ah_job *job, int rank)
{
    if (!may_replace(job, rank))
        return false;
    ah_job_watch_returns(job); /* it may have returned before it was killed again */
    if (!ah_control_replace(job->control, job->first + rank))
        return false;
    note_loss(job, rank);
    int status = ah_job_start_again(job, rank);
    if (status < 0) {
        ah_job_notice(job, "rank %d cannot be replaced: %s\n", job->first + rank, ah_error_text());
        return false;
    }
    job->replaced++;
    return true;
}

static void report_return(struct ah_job *job, int rank)
{
    const struct ah_loss *loss = &job->loss[rank];
    const struct ah_rank_entry *slot = ah_job_slot(job, rank);
    const char *name = ah_signal_name(loss->signal);
    long long at = (long long)atomic_load(&slot->returned_at);
    char others[80] = "", where[48] = "from its beginning";
    if (loss->more)
        snprintf(others, sizeof others, ", and %d that %s to replace it", loss->more, loss->more > 1 ? "were" : "was");
    if (at >= 0)
        snprintf(where, sizeof where, "at step %lld", at);
    ah_job_notice(job, "rank %d (pid %d) was killed by %s%s; replaced in %.2f s, resumes %s\n", job->first + rank,
                  (int)loss->pid, name ? name : "a signal", others,
                  (double)(atomic_load(&slot->returned_ns) - loss->died_ns) / 1e9, where);
}

/* The others wait for it without end. */
static void report_delay(struct ah_job *job, int rank)
{
    struct ah_loss *loss = &job->loss[rank];
    if (loss->reported || ah_now_ns() < loss->died_ns + job->stall_warning_ns)
        return;
    loss->reported = true;
    ah_job_notice(job, "rank %d was killed %.3g s ago, and its new process (pid %d) has not caught up yet\n",
                  job->first + rank, (double)job->stall_warning_ns / 1e9, (int)job->rank[rank].pid);
}

void ah_job_watch_returns(struct ah_job *job)
{
    for (int r = 0; r < job->size; r++) {
        if (!job->loss[r].pid)
            continue;
        if (atomic_load(&ah_job_slot(job, r)->state) == AH_RANK_RETURNING) {
            report_delay(job, r);
            continue;
        }
        if (atomic_load(&ah_job_slot(job, r)->returned_ns) > job->loss[r].died_ns)
            report_return(job, r);
        job->loss[r] = (struct ah_loss){0};
        job->returning--;
    }
}
