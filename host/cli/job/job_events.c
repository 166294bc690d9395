/* One poll over the jobs, the readers of their output, and signals. A job is stepped when its owner waits for it, and
 * only until it has an event, so that unread output of its ranks is buffered by their pipes and not here. */
#include "cli/job/job_events.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "cli/base/signal_queue.h"
#include "cli/output/launch_output.h"
#include "cli/output/rank_logs.h"

/* Events. */

static void job_events_add(struct ah_lua_job *job, struct ah_lua_event what, const char *text, size_t bytes)
{
    struct ah_lua_event *event = malloc(sizeof *event + bytes + 1);
    if (!event) {
        job->lost = true;
        return;
    }
    *event = what;
    event->next = NULL;
    event->bytes = bytes;
    if (bytes)
        memcpy(event->text, text, bytes);
    event->text[bytes] = 0;
    *job->events.end = event;
    job->events.end = &event->next;
}

void ah_lua_job_drop(struct ah_lua_job *job)
{
    struct ah_lua_event *event = job->events.first;
    job->events.first = event->next;
    if (!event->next)
        job->events.end = &job->events.first;
    free(event);
}

static void on_output(void *context, int rank, int stream, const char *text, size_t bytes)
{
    struct ah_lua_job *job = context;
    if (job->logs)
        ah_rank_logs_write(job->logs, rank, stream, text, bytes);
    if (!job->output && bytes)
        job_events_add(job, (struct ah_lua_event){.kind = AH_LUA_OUTPUT, .rank = rank, .stream = stream}, text, bytes);
    else if (job->output && bytes)
        ah_output_feed(job->output, stream, rank, text, bytes, ah_now_ns());
    else if (job->output)
        ah_output_end(job->output, stream, rank, ah_now_ns());
}

static void on_message(void *context, int rank, const char *bytes, size_t count)
{
    job_events_add(context, (struct ah_lua_event){.kind = AH_LUA_MESSAGE, .rank = rank}, bytes, count);
}

static void on_notice(void *context, const char *text)
{
    job_events_add(context, (struct ah_lua_event){.kind = AH_LUA_NOTICE}, text, strlen(text));
}

/* A job. */

int ah_lua_job_start(struct ah_lua_job *job, const struct ah_job_options *options, bool capture, bool show,
                     bool collapse_all)
{
    int status = 0;
    struct ah_job_options all = *options;
    job->due = -1;
    fflush(NULL); /* earlier output is written first */
    all.output = capture || show ? on_output : NULL;
    all.message = on_message;
    all.notice = on_notice;
    all.context = job;
    if (show) {
        ah_output_look_at_terminal(all.terminal, &all.columns);
        AH_TRYGO(ah_output_open(&job->output, (int[]){STDOUT_FILENO, STDERR_FILENO}, all.terminal, all.ranks), failed);
        ah_output_collapse_all(job->output, collapse_all);
    }
    AH_TRYGO(ah_job_start(&job->job, &all), failed);
    return 0;
failed:
    ah_lua_job_close(job);
    return status;
}

int ah_lua_job_keep_logs(struct ah_lua_job *job, const char *folder, int ranks)
{
    AH_TRY(ah_rank_logs_open(&job->logs, folder, "3", "0", ranks));
    int status = ah_rank_logs_begin(job->logs, 0, 0);
    if (status < 0) {
        ah_rank_logs_close(job->logs);
        job->logs = NULL;
    }
    return status;
}

void ah_lua_job_close(struct ah_lua_job *job)
{
    ah_job_close(job->job);
    job->job = NULL;
    ah_output_close(job->output);
    job->output = NULL;
    ah_rank_logs_close(job->logs);
    job->logs = NULL;
    while (job->events.first)
        ah_lua_job_drop(job);
}

char *ah_lua_job_report(struct ah_lua_job *job)
{
    struct ah_lua_events before = job->events;
    struct ah_text text = {0};
    job->events = (struct ah_lua_events){.end = &job->events.first};
    ah_job_report(job->job);
    for (; job->events.first; ah_lua_job_drop(job)) {
        const struct ah_lua_event *event = job->events.first;
        (void)ah_text_append(&text, event->text, event->bytes); /* text without memory for it is left out */
    }
    job->events = before;
    if (!before.first)
        job->events.end = &job->events.first;
    return text.at;
}

/* Waiting. */

/* The reader has closed the output, or the disk is full. */
static void on_output_error(struct ah_lua_job *job)
{
    int error = ah_output_error(job->output);
    if (error && !ah_job_is_over(job->job) && ah_job_exit_code(job->job) <= 128)
        ah_job_end(job->job, error == EPIPE ? SIGPIPE : SIGTERM);
}

static void job_events_show(struct ah_lua_job *job, int64_t looked)
{
    if (ah_job_is_over(job->job) && !job->finished) {
        ah_output_finish(job->output);
        job->finished = true;
    }
    job->due = ah_output_flush(job->output, looked);
    for (int s = 0; s < 2; s++)
        ah_job_hold(job->job, s, ah_output_is_full(job->output, s));
    on_output_error(job);
}

static bool is_shown(const struct ah_lua_job *job)
{
    return !job->output || ah_output_error(job->output) || !ah_output_pending(job->output);
}

/* A file that cannot be written does not end the job. */
static void on_log_error(struct ah_lua_job *job)
{
    char line[160];
    int error = job->logs ? ah_rank_logs_take_error(job->logs) : 0;
    if (!error)
        return;
    snprintf(line, sizeof line, "cannot write a log file, which ends here: %s\n", strerror(error));
    on_notice(job, line);
}

static void job_events_step(struct ah_lua_job *job)
{
    int64_t looked = ah_now_ns();
    if (job->reported)
        return;
    if (!ah_job_is_over(job->job))
        ah_job_step(job->job);
    if (job->output)
        job_events_show(job, looked);
    on_log_error(job);
    if (!ah_job_is_over(job->job) || !is_shown(job))
        return;
    job->reported = true;
    job_events_add(job, (struct ah_lua_event){.kind = AH_LUA_ENDED, .code = ah_job_exit_code(job->job)}, "", 0);
}

void ah_lua_job_settle(struct ah_lua_job *job)
{
    if (!job->output)
        return;
    ah_output_settle(job->output);
    while (ah_output_pending(job->output) && !ah_output_error(job->output)) {
        struct pollfd at[2];
        for (int s = 0; s < 2; s++)
            at[s] = (struct pollfd){.fd = ah_output_fd(job->output, s), .events = POLLOUT};
        if (poll(at, 2, -1) < 0 && errno != EINTR)
            return;
        ah_output_flush(job->output, ah_now_ns());
    }
}

static int64_t job_events_sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* The descriptors of the jobs that are not over, at most three each, and one for signals. */
static int job_events_gather(struct ah_lua_job **jobs, int count, struct pollfd *at, int64_t *due)
{
    int open = 0;
    at[open++] = (struct pollfd){.fd = ah_signal_queue_fd(), .events = POLLIN};
    for (int i = 0; i < count; i++) {
        struct ah_lua_job *job = jobs[i];
        if (job->reported)
            continue;
        *due = job_events_sooner(*due, job->due);
        if (!ah_job_is_over(job->job)) {
            *due = job_events_sooner(*due, ah_job_due(job->job));
            at[open++] = (struct pollfd){.fd = ah_job_fd(job->job), .events = POLLIN};
        }
        for (int s = 0; s < 2 && job->output; s++)
            at[open++] = (struct pollfd){.fd = ah_output_fd(job->output, s), .events = POLLOUT};
    }
    return open;
}

static bool has_events(struct ah_lua_job **jobs, int count, bool *all_reported)
{
    bool notification = false;
    *all_reported = true;
    for (int i = 0; i < count; i++) {
        notification |= jobs[i]->events.first != NULL;
        *all_reported &= jobs[i]->reported;
    }
    return notification;
}

static bool signals_wait(void)
{
    struct pollfd at = {.fd = ah_signal_queue_fd(), .events = POLLIN};
    return poll(&at, 1, 0) > 0;
}

int ah_lua_jobs_wait(struct ah_lua_job **jobs, int count, int64_t until)
{
    bool all_reported;
    AH_FREED struct pollfd *at = calloc(3 * (size_t)count + 1, sizeof *at);
    AH_TRY_MEMORY(at, "out of memory");
    for (;;) {
        for (int i = 0; i < count; i++) {
            job_events_step(jobs[i]);
            if (jobs[i]->lost)
                return ah_fail(AH_ENOMEM, "out of memory for a job's messages");
        }
        if (has_events(jobs, count, &all_reported) || signals_wait() || (all_reported && (count || until < 0)))
            break;
        int64_t due = until, now = ah_now_ns();
        if (until >= 0 && now >= until)
            break;
        int open = job_events_gather(jobs, count, at, &due);
        int64_t left = due - now;
        if (poll(at, (nfds_t)open, due < 0 ? -1 : left <= 0 ? 0 : (int)((left + 999999) / 1000000)) >= 0)
            continue;
        if (errno == EINTR)
            break; /* for a hook to run */
        return ah_fail(AH_EIO, "cannot wait for jobs: %s", strerror(errno));
    }
    return 0;
}
