/* A job: a gang of ranks that is started, watched and ended from code.
 *
 *     AH_TRY(ah_job_start(&job, &options));
 *     AH_TRY(ah_jobs_wait(&job, 1));       or, in one's own loop: poll ah_job_fd until ah_job_due, then step
 *     code = ah_job_exit_code(job);
 *     ah_job_close(job);
 *
 * Nothing here is shared between jobs: several may run at once. The ranks die with the thread that started them, and
 * whatever kills this process, nothing of the job is left. SIGCHLD must not be ignored while a job runs, else how a
 * rank ended is known from its control block only. One thread uses a job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_job;

struct ah_job_options {
    int ranks;           /* to run here */
    const struct ah_hosts *hosts; /* of which this is one of several, or NULL; until the job is closed */
    int threads;         /* of each rank, 0: processors / ranks */
    double timeout;      /* seconds that a rank may wait in a collective, 0: ACCELHOST_TIMEOUT, else 600 */
    double stall_warning; /* seconds without progress before a rank is reported, 0: ACCELHOST_PATIENCE, else 10 */
    double monitor_interval; /* seconds between polls for ranks that are stopped or do not start, 0: 1 */
    double grace;        /* seconds that ranks get to end after ah_job_end */
    char **argv;         /* the host's arguments in each rank, argv[0] included, NULL-ended */
    const char *const *variables; /* NAME=VALUE, NULL-ended: in the ranks' environment. NULL: none */
    int script;          /* a descriptor that the ranks keep, or -1 */
    bool recovers; /* a rank that a signal kills is replaced (comm/recover/recover.h), at most `replacements` times: */
    int replacements;    /* then argv, variables and script stay until the job is closed */
    const char *name;    /* prefix of reports on the job; NULL: "accelhost launch" */
    bool terminal[2];    /* whether output and error end up on a terminal, and how wide that is (0: unknown) */
    int columns;
    /* Output of a rank on stream 0 (output) or 1 (error); bytes 0: the stream is closed. Without this function the
     * ranks write to this process's own streams. */
    void (*output)(void *context, int rank, int stream, const char *text, size_t bytes);
    /* Complete lines for the user while the job runs, or in ah_job_report. May be NULL. */
    void (*notice)(void *context, const char *text);
    /* A message from a rank (cli/process/parent.h), after all its earlier output. With this function each rank has a
     * private channel, whose descriptor is in its ACCELHOST_CHANNEL. */
    void (*message)(void *context, int rank, const char *bytes, size_t count);
    void *context;
};

/* Nothing of the options but `context` need outlive the call. */
int ah_job_start(struct ah_job **out, const struct ah_job_options *options);
/* Kill the remaining processes and free the job. */
void ah_job_close(struct ah_job *job);

/* Readable when ah_job_step has something to do. */
int ah_job_fd(const struct ah_job *job);
/* Return the latest time of the next ah_job_step (ah_now_ns), or -1. */
int64_t ah_job_due(const struct ah_job *job);
/* Handle pending events; never waits. */
void ah_job_step(struct ah_job *job);
/* Every rank has ended, nothing is left of it, all output has been passed on that is not held. */
bool ah_job_has_ended(const struct ah_job *job);
/* The same, and nothing is held. */
bool ah_job_is_over(const struct ah_job *job);
/* Has a rank ended other than well? */
bool ah_job_is_failing(const struct ah_job *job);
/* One on another host has: these get a moment to raise themselves, then they are ended. */
void ah_job_follow(struct ah_job *job);
/* Step all of them until they are over. */
int ah_jobs_wait(struct ah_job *const *jobs, int count);

/* A message to a rank, kept here until the rank reads it. AH_EPEER when the rank reads no more, AH_EINVAL when it is
 * longer than AH_FRAME_MOST (base/io/frames.h). */
int ah_job_send(struct ah_job *job, int rank, const void *bytes, size_t count);
/* Send a signal to a rank's process group, -1: to those of all ranks; the job continues. */
void ah_job_interrupt(struct ah_job *job, int rank, int number);

/* Read a stream of the ranks no more, or again: meanwhile they wait in their writes. */
void ah_job_hold(struct ah_job *job, int stream, bool hold);
/* Send all ranks a signal to end; ranks that still run after the grace are killed, at the second call at once. */
void ah_job_end(struct ah_job *job, int number);
/* Send a signal that is a question (cli/process/status_signal.h) to every rank that answers. */
void ah_job_ask(struct ah_job *job, int number);
/* Send a signal to every rank whose script listens to it; a notice names the others, which it would end. */
void ah_job_pass(struct ah_job *job, int number);
/* Stop the ranks, and continue them. */
void ah_job_suspend(struct ah_job *job);
void ah_job_resume(struct ah_job *job);

/* Once it has ended: 0 ok, 2 wrong usage (every rank ended with 2 before its first collective), 3 a rank failed, 4 a
 * collective timed out, 128+n ended by signal n. */
int ah_job_exit_code(const struct ah_job *job);
/* Report by `notice` the rank that failed first and its error; nothing when none did. */
void ah_job_report(struct ah_job *job);

/* The failure that ended the job. */
struct ah_job_failure {
    int rank;
    int code, signal;  /* with which its process ended; code -1: not known */
    bool victim;       /* of another's failure: there is none here that is not */
    bool timed_out;    /* in a collective */
    int64_t most_bytes; /* the most memory that it had */
    const char *text;  /* message and traceback that it left, or "": until the job is closed */
};
/* False when none did. Once it has ended. */
bool ah_job_failed(const struct ah_job *job, struct ah_job_failure *failure);

/* Write the processes of the ranks, at most `room`; return their number. */
int ah_job_pids(const struct ah_job *job, int *pids, int room);
