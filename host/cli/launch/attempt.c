/* One poll over signals, the job and the readers of our output; nothing else here waits. */
#include "cli/launch/attempt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "cli/base/syscalls.h"
#include "cli/machines/machines.h"
#include "cli/output/launch_output.h"
#include "cli/output/rank_logs.h"

struct launch {
    struct ah_output *output;
    struct ah_job *job;
    struct ah_rank_logs *logs;
    struct ah_machines *machines; /* NULL: this one alone */
    int first, ranks; /* the first of those that run here, and the number of the job's */
    int signals;      /* signalfd */
    bool quiet;
    bool reported;    /* which rank failed */
    bool announced;   /* the other machines know of the failure here */
    bool followed;    /* the failure of another machine is known here */
    bool ends_along;  /* since the launcher of another machine was asked to end */
    bool asked;       /* to end, by a signal or since the ranks' output cannot be written */
    int signal;       /* by which we were asked to end while we waited for them */
    struct ah_text *report; /* keeps notices instead of showing them, or NULL */
    int output_error; /* errno of a failure to write the ranks' output */
};

static void on_output(void *context, int rank, int stream, const char *text, size_t bytes)
{
    struct launch *launch = context;
    if (launch->logs)
        ah_rank_logs_write(launch->logs, rank, stream, text, bytes);
    if (bytes && (!launch->logs || ah_rank_logs_shows(launch->logs, rank, stream)))
        ah_output_feed(launch->output, stream, launch->first + rank, text, bytes, ah_now_ns());
    else if (!bytes)
        ah_output_end(launch->output, stream, launch->first + rank, ah_now_ns());
}

static void on_notice(void *context, const char *text)
{
    struct launch *launch = context;
    if (launch->report)
        (void)ah_text_append(launch->report, text, strlen(text)); /* text without memory for it is left out */
    else if (!launch->quiet || launch->reported)
        ah_output_say(launch->output, 1, text);
}

/* Signals. */

int ah_attempt_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2};
    sigset_t set, blocked;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction now;
        /* Signals that nohup or a shell's background made the launcher ignore stay ignored. */
        if (sigaction(numbers[i], NULL, &now) || now.sa_handler != SIG_IGN)
            sigaddset(&set, numbers[i]);
    }
    /* Blocked, not ignored: a rank that is just being started keeps it for later. */
    blocked = set;
    sigaddset(&blocked, SIGPIPE);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals >= 0 ? signals : ah_fail(AH_EIO, "cannot watch signals (signalfd): %s", strerror(errno));
}

/* Does a signal ask the job to end? */
static bool attempt_ends(uint32_t number)
{
    return number != SIGTSTP && number != SIGUSR1 && number != SIGUSR2;
}

int ah_attempt_signalled(int signals)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info)
        if (attempt_ends(info.ssi_signo))
            return (int)info.ssi_signo;
    return 0;
}

/* Ctrl-Z: the ranks are no group of the terminal, so they stop and continue with the launcher. */
static void attempt_suspend(struct launch *launch)
{
    ah_job_suspend(launch->job);
    kill(getpid(), SIGSTOP);
    ah_job_resume(launch->job);
}

/* End the job here and on the other machines. A scheduler may signal all launchers at once: that does not count as the
 * second request, which kills, in any order of arrival. */
static void attempt_end(struct launch *launch, int number)
{
    bool again = launch->asked || !launch->ends_along;
    if (launch->machines && !launch->asked)
        ah_machines_report(launch->machines, number);
    launch->announced = launch->asked = true;
    if (again)
        ah_job_end(launch->job, number);
}

static void end_along(struct launch *launch, int number)
{
    if (!launch->asked)
        ah_job_end(launch->job, number);
    launch->ends_along = true;
}

static void on_signals(struct launch *launch)
{
    struct signalfd_siginfo info;
    while (read(launch->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            attempt_suspend(launch);
        else if (info.ssi_signo == SIGUSR2)
            ah_job_ask(launch->job, SIGUSR2);
        else if (info.ssi_signo == SIGUSR1)
            ah_job_pass(launch->job, SIGUSR1);
        else
            attempt_end(launch, (int)info.ssi_signo);
    }
}

/* The reader has closed the output, or the disk is full. */
static void on_output_error(struct launch *launch)
{
    int error = ah_output_error(launch->output);
    if (!error || launch->output_error)
        return;
    launch->output_error = error;
    attempt_end(launch, error == EPIPE ? SIGPIPE : SIGTERM);
}

/* A log that cannot be written does not end the job. */
static void on_log_error(struct launch *launch)
{
    char line[160];
    int error = launch->logs ? ah_rank_logs_take_error(launch->logs) : 0;
    if (!error)
        return;
    snprintf(line, sizeof line, "accelhost launch: cannot write a log file, which ends here: %s\n", strerror(error));
    ah_output_say(launch->output, 1, line);
}

/* Running. */

static int64_t attempt_sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Wait for a signal, the job (unless it is over) and the readers. */
static void wait_for_events(struct launch *launch, int64_t due)
{
    struct pollfd at[] = {
        {.fd = launch->signals, .events = POLLIN},
        {.fd = ah_job_is_over(launch->job) ? -1 : ah_job_fd(launch->job), .events = POLLIN},
        {.fd = ah_output_fd(launch->output, 0), .events = POLLOUT},
        {.fd = ah_output_fd(launch->output, 1), .events = POLLOUT},
        {.fd = launch->machines ? ah_machines_fd(launch->machines) : -1, .events = POLLIN},
    };
    int64_t left = due - ah_now_ns();
    int timeout = due < 0 ? -1 : left <= 0 ? 0 : (int)((left + 999999) / 1000000);
    poll(at, sizeof at / sizeof at[0], timeout);
}

/* The ranks' output so far is written first; output that a stalled reader delays may follow. */
static void attempt_report(struct launch *launch)
{
    bool reported = launch->reported;
    launch->reported = true;
    if (!reported)
        ah_job_report(launch->job);
}

/* Report events of other machines, and act on them, at once. */
static void poll_machines(struct launch *launch)
{
    int number;
    if (!launch->machines)
        return;
    if (!launch->announced && ah_job_is_failing(launch->job)) {
        launch->announced = true;
        ah_machines_report(launch->machines, 0);
    }
    if (!ah_machines_trouble(launch->machines, &number))
        return;
    launch->followed = true;
    if (number)
        end_along(launch, number);
    else
        ah_job_follow(launch->job);
}

static void attempt_supervise(struct launch *launch)
{
    int64_t looked = ah_now_ns();
    while (!ah_job_is_over(launch->job)) {
        int64_t due = ah_output_flush(launch->output, looked);
        for (int s = 0; s < 2; s++)
            ah_job_hold(launch->job, s, ah_output_is_full(launch->output, s));
        on_output_error(launch);
        on_log_error(launch);
        if (ah_job_has_ended(launch->job) && !launch->machines)
            attempt_report(launch);
        if (ah_job_is_over(launch->job))
            break;
        wait_for_events(launch, attempt_sooner(due, ah_job_due(launch->job)));
        on_signals(launch);
        looked = ah_now_ns(); /* we may be kept waiting, or be stopped, before and after */
        ah_job_step(launch->job);
        poll_machines(launch);
    }
}

/* Wait for the readers of the remaining output; a signal ends that. */
static void finish_output(struct launch *launch)
{
    struct signalfd_siginfo info;
    ah_output_finish(launch->output);
    while (ah_output_fd(launch->output, 0) >= 0 || ah_output_fd(launch->output, 1) >= 0) {
        wait_for_events(launch, ah_job_exit_code(launch->job) > 128 ? ah_now_ns() + 100000000 : -1);
        if (read(launch->signals, &info, sizeof info) == sizeof info && attempt_ends(info.ssi_signo))
            ah_job_end(launch->job, (int)info.ssi_signo);
        size_t before = ah_output_pending(launch->output);
        ah_output_flush(launch->output, ah_now_ns());
        if (ah_job_exit_code(launch->job) > 128 && ah_output_pending(launch->output) == before)
            return; /* asked to end, and the output is not read */
    }
    on_output_error(launch);
}

/* Several machines. */

static bool is_signalled(void *context)
{
    struct launch *launch = context;
    if (!launch->signal)
        launch->signal = ah_attempt_signalled(launch->signals);
    return launch->signal != 0;
}

static struct ah_machine_attribution own_attribution(struct launch *launch, const char *text)
{
    struct ah_job_failure failure;
    struct ah_machine_attribution attribution = {.code = ah_job_exit_code(launch->job), .text = ""};
    bool failed = ah_job_failed(launch->job, &failure);
    if (launch->output_error && launch->output_error != EPIPE)
        attribution.code = 3;
    attribution.final = launch->output_error != 0;
    attribution.victim = failed ? failure.victim : launch->followed;
    attribution.text = text ? text : "";
    return attribution;
}

static void attempt_print(struct launch *launch, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void attempt_print(struct launch *launch, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0) {
        ah_output_say(launch->output, 1, text);
        free(text);
    }
    va_end(args);
}

/* Print the same text on every machine, except for the exits of the machine's ranks. */
static void print_attribution(struct launch *launch, const struct ah_machine_attribution *all, int blamed)
{
    static const char name[] = "accelhost launch: ";
    const struct ah_hosts *hosts = ah_machines_hosts(launch->machines);
    const char *text = all->text;
    int last = hosts->first[hosts->mine + 1] - 1;
    text += strncmp(text, name, sizeof name - 1) ? 0 : sizeof name - 1;
    if (*text)
        attempt_print(launch, "%son %s: %s", name, hosts->name[blamed], text);
    else if (all->code > 128)
        attempt_print(launch, "%son %s: the launcher was asked to end by %s\n", name, hosts->name[blamed],
                      ah_signal_name(all->code - 128) ? ah_signal_name(all->code - 128) : "a signal");
    if (blamed != hosts->mine && launch->first < last)
        attempt_print(launch, "%sranks %d-%d, on %s, ended because of it\n", name, launch->first, last,
                      hosts->name[hosts->mine]);
    else if (blamed != hosts->mine)
        attempt_print(launch, "%srank %d, on %s, ended because of it\n", name, last, hosts->name[hosts->mine]);
}

static int conclude_all(struct launch *launch, struct ah_attempt_options *options)
{
    struct ah_machine_attribution all, mine = own_attribution(launch, options->failure);
    int blamed;
    ah_machines_conclude(launch->machines, &mine, is_signalled, launch, &all, &blamed);
    if (launch->signal && ah_machines_hosts(launch->machines)->mine == 0)
        ah_machines_report(launch->machines, launch->signal); /* the others' ranks continue, and lose their store */
    if (blamed >= 0 && all.code != 2) /* usage: the ranks have printed the reason */
        print_attribution(launch, &all, blamed);
    options->final = all.final;
    options->change = launch->signal ? NULL : all.change;
    if (blamed >= 0 && blamed != ah_machines_hosts(launch->machines)->mine) {
        options->failure_code = 0;
        free(options->failure);
        options->failure = strdup(all.text);
    }
    finish_output(launch);
    return launch->signal ? 128 + launch->signal : all.code;
}

static void keep_failure(struct launch *launch, struct ah_attempt_options *options)
{
    struct ah_job_failure failure;
    struct ah_text text = {0};
    launch->report = &text;
    ah_job_report(launch->job);
    launch->report = NULL;
    options->failure = text.at;
    if (ah_job_failed(launch->job, &failure))
        options->failure_code = failure.signal ? -failure.signal : failure.code;
}

static int attempt_conclude(struct launch *launch, struct ah_attempt_options *options)
{
    ah_output_finish(launch->output);
    on_log_error(launch);
    if (!launch->machines)
        attempt_report(launch);
    finish_output(launch);
    keep_failure(launch, options);
    int code = launch->machines ? conclude_all(launch, options) : ah_job_exit_code(launch->job);
    if (launch->output_error && launch->output_error != EPIPE) {
        fprintf(stderr, "accelhost launch: cannot write the ranks' output: %s\n", strerror(launch->output_error));
        return 3;
    }
    return code;
}

/* Ranks of other machines print nothing here. */
static void end_others(struct launch *launch, int here)
{
    for (int r = 0; r < launch->ranks; r++)
        for (int s = 0; s < 2 && (r < launch->first || r >= launch->first + here); s++)
            ah_output_end(launch->output, s, r, ah_now_ns());
}

int ah_attempt_run(struct ah_attempt_options *options, int *code)
{
    struct ah_job_options *job = &options->job;
    struct launch launch = {
        .signals = options->signals, .logs = options->logs, .quiet = options->quiet, .machines = options->machines,
        .ranks = job->ranks,
    };
    int status = 0;
    options->change = NULL;
    options->failure_code = 0;
    free(options->failure);
    options->failure = NULL;
    if (launch.machines) {
        const struct ah_hosts *hosts = ah_machines_hosts(launch.machines);
        job->hosts = hosts->count > 1 ? hosts : NULL;
        launch.first = hosts->first[hosts->mine];
        launch.ranks = hosts->first[hosts->count];
    }
    ah_output_look_at_terminal(job->terminal, &job->columns);
    job->output = launch.ranks > 1 || launch.logs ? on_output : NULL; /* else the rank writes to our output itself */
    job->notice = on_notice;
    job->context = &launch;
    fflush(NULL);
    AH_TRYGO(ah_output_open(&launch.output, (int[]){STDOUT_FILENO, STDERR_FILENO}, job->terminal, launch.ranks), out);
    end_others(&launch, job->ranks);
    AH_TRYGO(ah_job_start(&launch.job, job), out);
    attempt_supervise(&launch);
    *code = attempt_conclude(&launch, options);
    options->final |= launch.output_error != 0;
out:
    ah_job_close(launch.job);
    ah_output_close(launch.output);
    return status;
}
