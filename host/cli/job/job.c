/* One epoll set per job: the watch and two pipes of each rank. A job goes through the phases of job_state.h, each with
 * a deadline. Invariants: a rank's output is read before its exit is handled, and while a rank runs
 * `running` counts it. */
#include "cli/job/job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status/status.h"
#include "base/trace/time.h"
#include "cli/base/syscalls.h"
#include "cli/job/job_state.h"
#include "cli/job/orphans.h"

static const int64_t second_ns = 1000000000, millisecond_ns = 1000000;
static const int64_t peers_ns = 1000000000;  /* after a failure: for the peers to raise themselves */
static const int64_t term_ns = 500000000;    /* between SIGTERM and SIGKILL then */
static const int64_t nudge_ns = 1000000000;  /* after which ranks that ignore a signal get another */
static const int64_t leave_ns = 5000000000;  /* for children of well-ended ranks */
static const int64_t poll_ns = 50000000;     /* between polls of those */
static const int64_t return_ns = 20000000; /* between polls for replaced ranks */
static const int64_t quiet_pipe_ns = 200000000; /* of a pipe that an unknown process holds open */

enum { READ = 64 * 1024, EVENTS = 64 };

int ah_job_watch_source(struct ah_job *job, int rank, enum ah_job_source source, int fd, bool on)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(rank * AH_JOB_SOURCES + (int)source)};
    if (fd >= 0 && epoll_ctl(job->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event))
        return ah_fail(AH_EIO, "cannot watch rank %d: %s", job->first + rank, strerror(errno));
    return 0;
}

static pid_t *groups_of(const struct ah_job *job, pid_t groups[AH_MAX_RANKS])
{
    for (int r = 0; r < job->size; r++)
        groups[r] = job->rank[r].pid;
    return groups;
}

static int job_orphans(struct ah_job *job, int number, char *names, size_t room)
{
    pid_t groups[AH_MAX_RANKS];
    return ah_orphans_signal(job->mark, groups_of(job, groups), job->size, number, names, room);
}

void ah_job_close(struct ah_job *job)
{
    if (!job)
        return;
    if (job->phase != AH_JOB_OVER && job->phase != AH_JOB_DRAINING)
        for (int round = 0; round < 20 && job_orphans(job, SIGKILL, NULL, 0); round++)
            usleep(1000);
    for (int r = 0; r < job->size; r++)
        if (job->rank[r].pid || job->rank[r].watch.fd > 0)
            ah_rank_process_close(&job->rank[r]);
    for (int r = 0; r < job->size; r++)
        ah_job_close_channel(job, r);
    ah_reaper_close(&job->reaper);
    ah_control_close(job->control);
    if (job->epoll >= 0)
        close(job->epoll);
    free(job);
}

/* Phases. */

static void job_enter(struct ah_job *job, enum ah_job_phase phase, int64_t wait)
{
    job->phase = phase;
    job->deadline = wait < 0 ? -1 : ah_now_ns() + wait;
}

static void signal_ranks(struct ah_job *job, int number)
{
    for (int r = 0; r < job->size; r++) {
        if (!job->rank[r].running)
            continue;
        job->rank[r].killed = true;
        ah_rank_process_signal(&job->rank[r], number);
    }
}

static void kill_ranks(struct ah_job *job)
{
    signal_ranks(job, SIGKILL);
    job_enter(job, AH_JOB_KILLED, -1);
}

/* No more output can arrive: read the rest of the pipes. */
static void job_drain(struct ah_job *job)
{
    job_enter(job, AH_JOB_DRAINING, quiet_pipe_ns);
    if (!job->open_pipes)
        job_enter(job, AH_JOB_OVER, -1);
}

/* All ranks have ended. */
static void job_leave(struct ah_job *job)
{
    bool well = !job->failed && !job->followed && !job->signal;
    if (!job_orphans(job, well ? 0 : SIGTERM, NULL, 0)) {
        job_drain(job);
        return;
    }
    int64_t grace = (int64_t)(job->options.grace * (double)second_ns);
    job->leave_ns = ah_now_ns() + (!well ? term_ns : grace < leave_ns ? grace : leave_ns);
    job_enter(job, well ? AH_JOB_LEAVING : AH_JOB_TIDYING, poll_ns);
}

/* Poll the processes that the ranks have left behind. */
static void poll_orphans(struct ah_job *job)
{
    char names[256];
    int64_t now = ah_now_ns();
    int left = job_orphans(job, 0, names, sizeof names);
    if (!left) {
        job_drain(job);
    } else if (now < job->leave_ns) {
        if (job->phase == AH_JOB_LEAVING && !job->reported_left && now > job->leave_ns - 4 * second_ns) {
            job->reported_left = true;
            ah_job_notice(job, "all ranks have ended; processes that they started still run: %s%s\n", names,
                          left > 4 ? ", ..." : "");
        }
        job_enter(job, job->phase, poll_ns);
    } else if (job->phase == AH_JOB_LEAVING) {
        job_orphans(job, SIGTERM, NULL, 0);
        job->leave_ns = now + term_ns;
        job_enter(job, AH_JOB_TIDYING, poll_ns);
    } else if (now < job->leave_ns + 2 * second_ns) {
        job_orphans(job, SIGKILL, NULL, 0);
        job_enter(job, AH_JOB_TIDYING, 10 * millisecond_ns);
    } else {
        job_drain(job); /* not even SIGKILL ends it */
    }
}

static void on_deadline(struct ah_job *job)
{
    switch (job->phase) {
    case AH_JOB_FAILING:
        signal_ranks(job, SIGTERM);
        job_enter(job, AH_JOB_TERMINATING, term_ns);
        break;
    case AH_JOB_TERMINATING:
    case AH_JOB_SIGNALLED:
        kill_ranks(job);
        break;
    case AH_JOB_LEAVING:
    case AH_JOB_TIDYING:
        poll_orphans(job);
        break;
    case AH_JOB_DRAINING:
        /* Held output is kept for its reader, unless we were asked to end. */
        job->quiet = true;
        if ((job->held[0] || job->held[1]) && !job->signal)
            job_enter(job, AH_JOB_DRAINING, quiet_pipe_ns);
        else
            job_enter(job, AH_JOB_OVER, -1);
        break;
    default:
        job->deadline = -1;
    }
}

/* Events of the ranks. */

static void close_pipe(struct ah_job *job, int rank, int s)
{
    struct ah_rank_process *process = &job->rank[rank];
    if (!job->held[s])
        ah_job_watch_source(job, rank, AH_JOB_OUTPUT + s, process->pipe[s], false);
    close(process->pipe[s]);
    process->pipe[s] = -1;
    job->open_pipes--;
    job->options.output(job->options.context, rank, s, "", 0);
}

/* Returns whether there may be more. */
static bool job_pump(struct ah_job *job, int rank, int s)
{
    char text[READ];
    int fd = job->rank[rank].pipe[s];
    if (fd < 0 || job->held[s])
        return false;
    ssize_t n = read(fd, text, sizeof text);
    if (n > 0) {
        if (job->phase == AH_JOB_DRAINING)
            job_enter(job, AH_JOB_DRAINING, quiet_pipe_ns);
        job->options.output(job->options.context, rank, s, text, (size_t)n);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_pipe(job, rank, s);
    return false;
}

/* Read a rank's output up to now; children of an ended rank may write for ever. */
static void pump_output(struct ah_job *job, int rank)
{
    for (int s = 0; s < 2; s++)
        for (int turns = 0; turns < 16 && job_pump(job, rank, s); turns++)
            ;
}

static void on_exit_of(struct ah_job *job, int rank)
{
    struct ah_rank_process *process = &job->rank[rank];
    struct ah_rank_entry *slot = ah_job_slot(job, rank);
    /* Its output is written before the report of its end. */
    pump_output(job, rank);
    ah_job_pump_channel(job, rank);
    if (!ah_rank_process_look(process) || ah_job_replace(job, rank))
        return;
    ah_rank_process_let_go(process);
    if (process->code < 0)
        process->code = atomic_load(&slot->state) != AH_RANK_ENDED;
    job->running--;
    ah_job_watch_source(job, rank, AH_JOB_EXIT, process->watch.fd, false);
    bool failed = process->code || process->signal;
    ah_control_leave(job->control, job->first + rank, failed ? AH_RANK_DIED : AH_RANK_ENDED, NULL, false);
    /* A rank may have reported a failure and still have left with 0. */
    failed |= atomic_load(&slot->state) == AH_RANK_FAILED;
    if (failed) {
        job->failed |= !process->killed;
        ah_rank_process_signal(process, SIGKILL); /* its children */
        if (job->phase == AH_JOB_RUNNING) {
            for (int r = 0; r < job->size; r++)
                ah_rank_process_look_stopped(&job->rank[r]);
            job_enter(job, AH_JOB_FAILING, peers_ns);
        }
    }
    job->alone_ns = failed ? -1 : ah_now_ns();
    if (job->running == 0)
        job_leave(job);
}

/* Is a signal in one of a process's sets, "SigIgn: %llx" (ignored) or "SigCgt: %llx" (caught)? */
static bool is_in_set(pid_t pid, const char *set, int number)
{
    char path[32], line[128];
    unsigned long long signals = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file) && sscanf(line, set, &signals) != 1)
        ;
    fclose(file);
    return signals >> (number - 1) & 1;
}

static void job_wake(struct ah_job *job)
{
    bool left[AH_MAX_RANKS] = {false};
    char ranks[512];
    job->nudged = true;
    for (int r = 0; r < job->size; r++) {
        left[r] = job->rank[r].running;
        /* Between fork and exec a rank ignores the signals that this process ignores, and such a signal is lost; SIGINT
         * does not reach a program that waits in os.execute: it ignores it meanwhile. */
        if (left[r])
            ah_rank_process_signal(&job->rank[r], is_in_set(job->rank[r].pid, "SigIgn: %llx", job->signal)
                                                      ? SIGTERM : job->signal);
    }
    ah_job_list_ranks(job, left, ranks, sizeof ranks);
    ah_job_notice(job, "%s may take %g s to end (a second signal kills)\n", ranks, job->options.grace);
}

void ah_job_step(struct ah_job *job)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(job->epoll, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        int rank = (int)events[i].data.u32 / AH_JOB_SOURCES, source = (int)events[i].data.u32 % AH_JOB_SOURCES;
        if (source == AH_JOB_EXIT) {
            on_exit_of(job, rank);
        } else if (source == AH_JOB_CHANNEL) {
            pump_output(job, rank);
            ah_job_pump_channel(job, rank);
        } else {
            job_pump(job, rank, source - AH_JOB_OUTPUT);
        }
    }
    int64_t now = ah_now_ns();
    if (job->phase == AH_JOB_SIGNALLED && !job->nudged && now >= job->signal_ns + nudge_ns)
        job_wake(job);
    if (job->returning)
        ah_job_watch_returns(job);
    if (job->running && now >= job->watch_ns) {
        job->watch_ns = ah_job_next_watch(job, now);
        ah_job_watch(job, now);
    }
    if (job->deadline >= 0 && now >= job->deadline)
        on_deadline(job);
    if (job->phase == AH_JOB_DRAINING && !job->open_pipes)
        job_enter(job, AH_JOB_OVER, -1);
}

int ah_job_fd(const struct ah_job *job)
{
    return job->epoll;
}

int64_t ah_job_due(const struct ah_job *job)
{
    int64_t due = job->deadline;
    if (job->running && (due < 0 || job->watch_ns < due))
        due = job->watch_ns;
    if (job->phase == AH_JOB_SIGNALLED && !job->nudged && job->signal_ns + nudge_ns < due)
        due = job->signal_ns + nudge_ns;
    int64_t soon = job->returning ? ah_now_ns() + return_ns : -1;
    if (soon >= 0 && (due < 0 || soon < due))
        due = soon;
    return due;
}

bool ah_job_has_ended(const struct ah_job *job)
{
    return job->phase == AH_JOB_OVER || job->quiet;
}

bool ah_job_is_failing(const struct ah_job *job)
{
    return job->failed;
}

void ah_job_follow(struct ah_job *job)
{
    job->followed = true;
    if (job->phase == AH_JOB_RUNNING && job->running)
        job_enter(job, AH_JOB_FAILING, peers_ns);
}

bool ah_job_is_over(const struct ah_job *job)
{
    return job->phase == AH_JOB_OVER;
}

int ah_jobs_wait(struct ah_job *const *jobs, int count)
{
    for (;;) {
        struct pollfd at[64];
        int64_t due = -1, now = ah_now_ns();
        int open = 0;
        for (int i = 0; i < count; i++) {
            if (ah_job_is_over(jobs[i]))
                continue;
            int64_t next = ah_job_due(jobs[i]);
            due = next >= 0 && (due < 0 || next < due) ? next : due;
            if (open < 64)
                at[open] = (struct pollfd){.fd = ah_job_fd(jobs[i]), .events = POLLIN};
            open++;
        }
        if (!open)
            return 0;
        if (open > 64)
            return ah_fail(AH_EINVAL, "expected at most 64 jobs to wait for, got %d", open);
        int64_t left = due - now;
        int timeout = due < 0 ? -1 : left <= 0 ? 0 : (int)((left + 999999) / 1000000);
        if (poll(at, (nfds_t)open, timeout) < 0 && errno != EINTR)
            return ah_fail(AH_EIO, "cannot wait for jobs: %s", strerror(errno));
        for (int i = 0; i < count; i++)
            if (!ah_job_is_over(jobs[i]))
                ah_job_step(jobs[i]);
    }
}

/* Asking. */

void ah_job_hold(struct ah_job *job, int stream, bool hold)
{
    if (job->held[stream] == hold)
        return;
    job->held[stream] = hold;
    for (int r = 0; r < job->size; r++)
        ah_job_watch_source(job, r, AH_JOB_OUTPUT + stream, job->rank[r].pipe[stream], !hold);
}

void ah_job_end(struct ah_job *job, int number)
{
    bool again = job->signal != 0;
    if (!again) {
        job->signal = number;
        job->signal_ns = ah_now_ns();
    }
    if (job->running && !again) {
        signal_ranks(job, number);
        job_enter(job, AH_JOB_SIGNALLED, (int64_t)(job->options.grace * (double)second_ns));
    } else if (job->running) {
        kill_ranks(job);
    } else if (job->phase == AH_JOB_LEAVING || job->phase == AH_JOB_TIDYING) {
        job_orphans(job, again ? SIGKILL : SIGTERM, NULL, 0);
        job->leave_ns = ah_now_ns() + (again ? 0 : term_ns);
        job_enter(job, AH_JOB_TIDYING, 10 * millisecond_ns);
    } else {
        job_enter(job, AH_JOB_OVER, -1);
    }
}

void ah_job_ask(struct ah_job *job, int number)
{
    for (int r = 0; r < job->size; r++)
        if (job->rank[r].running && atomic_load(&ah_job_slot(job, r)->counters.answers))
            syscall(SYS_tgkill, job->rank[r].pid, job->rank[r].pid, number);
}

void ah_job_pass(struct ah_job *job, int number)
{
    bool deaf[AH_MAX_RANKS] = {false};
    int count = 0;
    char ranks[512];
    for (int r = 0; r < job->size; r++) {
        deaf[r] = job->rank[r].running && !is_in_set(job->rank[r].pid, "SigCgt: %llx", number);
        count += deaf[r];
        if (job->rank[r].running && !deaf[r])
            kill(job->rank[r].pid, number);
    }
    ah_job_list_ranks(job, deaf, ranks, sizeof ranks);
    if (count)
        ah_job_notice(job, "%s do%s not listen to %s (accelerator:save_on_signal does)\n", ranks,
                      count == 1 ? "es" : "", ah_signal_name(number));
}

void ah_job_interrupt(struct ah_job *job, int rank, int number)
{
    for (int r = 0; r < job->size; r++)
        if (job->rank[r].running && (rank < 0 || r == rank))
            ah_rank_process_signal(&job->rank[r], number);
}

int ah_job_pids(const struct ah_job *job, int *pids, int room)
{
    for (int r = 0; r < job->size && r < room; r++)
        pids[r] = (int)job->rank[r].pid;
    return job->size;
}

void ah_job_suspend(struct ah_job *job)
{
    job->suspended = true;
    for (int r = 0; r < job->size; r++)
        if (job->rank[r].running)
            ah_rank_process_signal(&job->rank[r], SIGSTOP);
}

void ah_job_resume(struct ah_job *job)
{
    for (int r = 0; r < job->size; r++)
        if (job->rank[r].running)
            ah_rank_process_signal(&job->rank[r], SIGCONT);
    job->suspended = false;
}
