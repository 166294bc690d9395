/* A thin command over a job (cli/job.h): options in, the ranks' output merged, signals passed on, the verdict out. One
 * poll over signals, the job and the readers of our output; nothing else here waits. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/status.h"
#include "base/time.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/job.h"
#include "cli/launch_output.h"
#include "cli/script.h"

struct launch_options {
    double processes, threads, timeout, patience, grace, max_memory;
    bool jit_off, gc_stress;
};

#define FIELD(name) offsetof(struct launch_options, name)
static const struct ah_flag flags[] = {
    {"--num_processes", AH_FLAG_WHOLE, FIELD(processes), 1, 256, "N", "ranks to start (default 1)"},
    {"--num_cpu_threads_per_process", AH_FLAG_WHOLE, FIELD(threads), 1, 1024, "T",
     "threads of each rank (default: processors / ranks)"},
    {"--timeout", AH_FLAG_NUMBER, FIELD(timeout), 1e-3, 1e9, "S",
     "seconds a rank may wait in a collective (default 600)"},
    {"--patience", AH_FLAG_NUMBER, FIELD(patience), 1e-3, 1e9, "S",
     "seconds before a rank that does not come on is told (default 10)"},
    {"--grace", AH_FLAG_NUMBER, FIELD(grace), 0, 1e6, "S", "seconds the ranks get to end after a signal (default 30)"},
    {"--max_memory", AH_FLAG_BYTES, FIELD(max_memory), 1 << 20, 1e15, "SIZE",
     "memory that a rank may take for itself, such as 2G"},
    {"--jit", AH_FLAG_ON_OFF, FIELD(jit_off), 0, 0, "on|off", "LuaJIT's compiler (default on)"},
    {"--gc-stress", AH_FLAG_SWITCH, FIELD(gc_stress), 0, 0, NULL, "collect garbage at every tensor op"},
};
enum { FLAGS = sizeof flags / sizeof *flags };

static void print_help(void)
{
    puts("usage: accelhost launch [options] script.lua [arguments]\n"
         "       accelhost launch [options] -e CODE [arguments]\n\n"
         "Runs a script in several processes (ranks) of this host and supervises them. A script named - is read from\n"
         "stdin.\n\noptions:");
    ah_flags_print(flags, FLAGS);
    puts("\nexit codes: 0 ok, 2 usage, 3 a rank failed, 4 a collective timed out, 128+n ended by signal n");
}

struct launch {
    struct ah_output *output;
    struct ah_job *job;
    int signals;      /* signalfd */
    bool reported;    /* which rank failed */
    int output_error; /* errno of what kept us from writing what ranks said */
};

static void on_output(void *context, int rank, int stream, const char *text, size_t bytes)
{
    struct launch *launch = context;
    if (bytes)
        ah_output_feed(launch->output, stream, rank, text, bytes, ah_now_ns());
    else
        ah_output_end(launch->output, stream, rank, ah_now_ns());
}

static void on_notice(void *context, const char *text)
{
    struct launch *launch = context;
    ah_output_say(launch->output, 1, text);
}

/* Signals. */

static int watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    sigset_t set, blocked;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction now;
        /* What nohup or a shell's background made us ignore stays ignored. */
        if (sigaction(numbers[i], NULL, &now) || now.sa_handler != SIG_IGN)
            sigaddset(&set, numbers[i]);
    }
    /* Blocked, not ignored: a rank that is just being started keeps it for later. */
    blocked = set;
    sigaddset(&blocked, SIGPIPE);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Ctrl-Z: the ranks are no group of the terminal, so they stop and go on with us. */
static void suspend(struct launch *launch)
{
    ah_job_suspend(launch->job);
    kill(getpid(), SIGSTOP);
    ah_job_resume(launch->job);
}

static void on_signals(struct launch *launch)
{
    struct signalfd_siginfo info;
    while (read(launch->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            suspend(launch);
        else
            ah_job_end(launch->job, (int)info.ssi_signo);
    }
}

/* Nobody reads any more, or the disk is full. */
static void on_output_error(struct launch *launch)
{
    int error = ah_output_error(launch->output);
    if (!error || launch->output_error)
        return;
    launch->output_error = error;
    ah_job_end(launch->job, error == EPIPE ? SIGPIPE : SIGTERM);
}

/* Running. */

static int64_t sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Wait for a signal, the job (unless it is over) and the readers. */
static void wait_for_news(struct launch *launch, int64_t due)
{
    struct pollfd at[] = {
        {.fd = launch->signals, .events = POLLIN},
        {.fd = ah_job_is_over(launch->job) ? -1 : ah_job_fd(launch->job), .events = POLLIN},
        {.fd = ah_output_fd(launch->output, 0), .events = POLLOUT},
        {.fd = ah_output_fd(launch->output, 1), .events = POLLOUT},
    };
    int64_t left = due - ah_now_ns();
    int timeout = due < 0 ? -1 : left <= 0 ? 0 : (int)((left + 999999) / 1000000);
    poll(at, sizeof at / sizeof at[0], timeout);
}

/* What the ranks have said so far comes first; what a stalled reader keeps back may come after. */
static void report(struct launch *launch)
{
    if (!launch->reported)
        ah_job_report(launch->job);
    launch->reported = true;
}

static void supervise(struct launch *launch)
{
    int64_t looked = ah_now_ns();
    while (!ah_job_is_over(launch->job)) {
        int64_t due = ah_output_flush(launch->output, looked);
        for (int s = 0; s < 2; s++)
            ah_job_hold(launch->job, s, ah_output_is_full(launch->output, s));
        on_output_error(launch);
        if (ah_job_has_ended(launch->job))
            report(launch);
        if (ah_job_is_over(launch->job))
            break;
        wait_for_news(launch, sooner(due, ah_job_due(launch->job)));
        on_signals(launch);
        looked = ah_now_ns(); /* we may be kept waiting, or be stopped, before and after */
        ah_job_step(launch->job);
    }
}

/* Wait for the readers of what is left; a signal ends that. */
static void finish_output(struct launch *launch)
{
    struct signalfd_siginfo info;
    ah_output_finish(launch->output);
    while (ah_output_fd(launch->output, 0) >= 0 || ah_output_fd(launch->output, 1) >= 0) {
        wait_for_news(launch, ah_job_exit_code(launch->job) > 128 ? ah_now_ns() + 100000000 : -1);
        if (read(launch->signals, &info, sizeof info) == sizeof info && info.ssi_signo != SIGTSTP)
            ah_job_end(launch->job, (int)info.ssi_signo);
        size_t before = ah_output_pending(launch->output);
        ah_output_flush(launch->output, ah_now_ns());
        if (ah_job_exit_code(launch->job) > 128 && ah_output_pending(launch->output) == before)
            return; /* asked to end, and nobody reads */
    }
    on_output_error(launch);
}

static int conclude(struct launch *launch)
{
    ah_output_finish(launch->output);
    report(launch);
    finish_output(launch);
    int code = ah_job_exit_code(launch->job);
    if (launch->output_error && launch->output_error != EPIPE) {
        fprintf(stderr, "accelhost launch: cannot write what the ranks print: %s\n", strerror(launch->output_error));
        return 3;
    }
    return code;
}

/* The ranks' command line; NULL when memory is out. */
static char **make_command(const struct launch_options *options, int script, int argc, char **argv)
{
    enum { OWN = 6 };
    enum { TEXT = 48 };
    char **command = calloc(1, ((size_t)argc + OWN + 1) * sizeof *command + 2 * TEXT);
    int at = 0;
    if (!command)
        return NULL;
    char *memory = (char *)(command + argc + OWN + 1), *text = memory + TEXT;
    command[at++] = (char *)"accelhost";
    command[at++] = (char *)"run";
    if (options->jit_off)
        command[at++] = (char *)"--jit=off";
    if (options->gc_stress)
        command[at++] = (char *)"--gc-stress";
    if (options->max_memory > 0) {
        snprintf(memory, TEXT, "--max_memory=%.0f", options->max_memory);
        command[at++] = memory;
    }
    if (script >= 0) {
        snprintf(text, TEXT, "--script_fd=%d", script);
        command[at++] = text;
    }
    memcpy(command + at, argv, (size_t)argc * sizeof *command);
    return command;
}

static void describe(struct ah_job_options *job, const struct launch_options *options)
{
    struct winsize window = {0};
    job->ranks = (int)options->processes;
    job->threads = (int)options->threads;
    job->timeout = options->timeout;
    job->patience = options->patience;
    job->grace = options->grace;
    job->terminal[0] = isatty(STDOUT_FILENO);
    job->terminal[1] = isatty(STDERR_FILENO);
    if (!ioctl(job->terminal[0] ? STDOUT_FILENO : STDERR_FILENO, TIOCGWINSZ, &window))
        job->columns = window.ws_col;
    job->output = job->ranks > 1 ? on_output : NULL; /* a single rank writes to our output itself */
    job->notice = on_notice;
}

int ah_cli_launch(int argc, char **argv)
{
    struct launch_options options = {.processes = 1, .grace = 30};
    struct launch launch = {.signals = -1};
    struct ah_job_options job = {.script = -1, .context = &launch};
    int status = 0, code = 3, first = ah_flags_read("launch", flags, FLAGS, print_help, argc, argv, &options);
    if (first < 0)
        return -1 - first;
    argc -= first;
    argv += first;
    if (ah_script_check("launch", argc, argv))
        return 2;
    describe(&job, &options);
    if (strcmp(argv[0], "-e") && ah_script_is_stream(argv[0]))
        AH_TRYGO(ah_script_keep(argv[0], &job.script), out);
    launch.signals = watch_signals();
    job.argv = make_command(&options, job.script, argc, argv);
    if (!job.argv || launch.signals < 0) {
        status = ah_fail(AH_EIO, "%s", strerror(errno));
        goto out;
    }
    fflush(NULL);
    AH_TRYGO(ah_output_open(&launch.output, (int[]){STDOUT_FILENO, STDERR_FILENO}, job.terminal, job.ranks), out);
    AH_TRYGO(ah_job_start(&launch.job, &job), out);
    supervise(&launch);
    code = conclude(&launch);
out:
    if (status < 0)
        fprintf(stderr, "accelhost launch: %s\n", ah_error_text());
    ah_job_close(launch.job);
    ah_output_close(launch.output);
    if (launch.signals >= 0)
        close(launch.signals);
    if (job.script >= 0)
        close(job.script);
    free(job.argv);
    return code;
}
