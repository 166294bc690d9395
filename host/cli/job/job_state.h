/* Internal state of a job, for job.c and job_*.c only. Circle: job, job_replace, job_start: the loop that sees a rank
 * end has it started again, as the job was, and the new process belongs to the loop. */
#pragma once

#include <sys/types.h>

#include "cli/job/job.h"
#include "cli/job/rank_process.h"
#include "cli/job/reaper.h"
#include "comm/control/control_block.h"

enum ah_job_phase {
    AH_JOB_RUNNING,
    AH_JOB_FAILING,   /* a rank failed: the others get a moment to raise themselves ... */
    AH_JOB_TERMINATING, /* ... then SIGTERM ... */
    AH_JOB_SIGNALLED, /* we were asked to end it and passed that on */
    AH_JOB_KILLED,    /* ... and SIGKILL in the end */
    AH_JOB_LEAVING,   /* all ranks have ended; processes that they started may run for a moment */
    AH_JOB_TIDYING,   /* it was asked to end */
    AH_JOB_DRAINING,  /* nothing is left; the last output is read */
    AH_JOB_OVER,
};

/* A rank's process that was killed, while another one replaces it. */
struct ah_loss {
    pid_t pid;       /* 0: there is none */
    int signal;
    int more;        /* replacements that were killed too */
    bool reported;   /* its delay was reported */
    int64_t died_ns;
};

struct ah_job {
    struct ah_job_options options; /* argv, script and name as in the caller's: used after the start if it recovers */
    struct ah_control_block *control;
    struct ah_frames *channel[AH_MAX_RANKS]; /* NULL: none, or closed */
    struct ah_reaper reaper;
    int epoll;
    char mark[256];
    char name[48];
    enum ah_job_phase phase;
    int64_t deadline;   /* of the phase, -1 for none */
    int size, first;    /* ranks that run here, of which the first one is number `first` of the job */
    int running, open_pipes;
    bool held[2];       /* streams that are not read for now */
    bool quiet;         /* draining, and only held lines are left */
    bool suspended;
    bool failed;        /* a rank ended other than well */
    bool followed;      /* one on another host did */
    int signal;         /* with which we were asked to end it, else 0 */
    int64_t signal_ns;  /* when that was */
    int64_t leave_ns;   /* grace period of processes that the ranks have left */
    int64_t started_ns, alone_ns; /* alone: when the last rank ended well, -1 before */
    int64_t stall_warning_ns; /* without progress before a rank is reported */
    int64_t watch_ns;   /* when to poll again for ranks without progress */
    uint64_t descriptors; /* the soft limit that the ranks get, 0: as here */
    int replaced;       /* ranks so far */
    int returning;      /* losses that are not made good yet */
    struct ah_loss loss[AH_MAX_RANKS];
    bool reported_missing, reported_alone, reported_left, nudged;
    struct ah_rank_process rank[];
};

/* The source of an event of job->epoll, in addition to its rank. */
enum ah_job_source { AH_JOB_EXIT, AH_JOB_OUTPUT, AH_JOB_ERROR, AH_JOB_CHANNEL, AH_JOB_SOURCES };

/* Watch a descriptor of a rank, or no more; none (-1) is nothing. */
int ah_job_watch_source(struct ah_job *job, int rank, enum ah_job_source source, int fd, bool on);

/* Start the process of a rank once more. */
int ah_job_start_again(struct ah_job *job, int rank);
/* A rank's process has ended: replace it, if it was killed by a signal and the job may continue. */
bool ah_job_replace(struct ah_job *job, int rank);
/* Report the ranks that have been replaced, and those whose replacement is slow. */
void ah_job_watch_returns(struct ah_job *job);

/* Own a rank's end of its channel and watch it. */
int ah_job_open_channel(struct ah_job *job, int rank, int fd);
void ah_job_close_channel(struct ah_job *job, int rank);
/* Send and receive without waiting; received messages are passed to the job's owner. */
void ah_job_pump_channel(struct ah_job *job, int rank);

/* Print a line for the user, after the job's name. */
void ah_job_notice(struct ah_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Report, once each, ranks that were stopped, that do not start, or that still run long after the others have ended. */
void ah_job_watch(struct ah_job *job, int64_t now);
/* Return the time of the next check. */
int64_t ah_job_next_watch(const struct ah_job *job, int64_t now);

/* The slot on the control block of a rank that runs here. */
static inline struct ah_rank_entry *ah_job_slot(const struct ah_job *job, int rank)
{
    return ah_rank_entry(job->control, job->first + rank);
}

/* "rank 2" or "ranks 0, 2, 4-7", of those that run here, by their numbers in the job */
void ah_job_list_ranks(const struct ah_job *job, const bool *listed, char *text, size_t room);
/* "; its last collective was barrier #3 at train.lua:7", or "" before the first */
void ah_job_last_collective(const struct ah_job *job, int rank, char *text, size_t room);
