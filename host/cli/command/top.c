/* accelhost top: options here; host/bind/comm/jobs.c reads the jobs, lua/accelhost/top shows them, in a new Lua
 * host. */
#include <stdio.h>

#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"

struct top_options {
    bool once, json;
    double interval;
};

#define FIELD(name) offsetof(struct top_options, name)
static const struct ah_flag top_flags[] = {
    {"--once", AH_FLAG_SWITCH, FIELD(once), .help = "sample once (for a third of a second) and exit"},
    {"--json", AH_FLAG_SWITCH, FIELD(json), .help = "a line of JSON for each sample"},
    {"--interval", AH_FLAG_VALUE, FIELD(interval), {.kind = AH_VALUE_NUMBER, 0.1, 3600}, "SECONDS",
     "between two samples (default 2)"},
};
enum { FLAGS = sizeof top_flags / sizeof *top_flags };

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost top [options] [JOB]\n\n"
        "Shows every rank of your running jobs on this host: steps, steps per second, the loss of the last\n"
        "backward, memory, processor time, threads, the last collective and how long ago it was called, the line\n"
        "of the last backward, and the state now: the ranks it waits for, whether it is stopped, and, without\n"
        "progress, the line, read, op or loop that it is in. JOB is the pid of a launcher (or of a script that\n"
        "runs without one) or a part of its command line. On a terminal a page that redraws itself (q quits),\n"
        "else text.\n\n"
        "kill -USR2 PID of a job makes every rank write its traceback to stderr and continue.\n\noptions:");
    ah_flags_print(top_flags, FLAGS);
    ah_help_print(
        "\nJSON: {\"jobs\": [{\"pid\", \"command\", \"ranks\": [RANK]}]}. RANK: \"rank\", \"pid\", \"state\"\n"
        "(starting, running, waiting, sleeping, stopped, ended, failed, died), \"steps\",\n"
        "\"step_rate\" (per second), \"step_seconds\" (since the last), \"backwards\", \"loss\" (a text when not\n"
        "finite), \"memory\" (bytes), \"threads\", \"cpu\" (processors in use), \"cpu_seconds\",\n"
        "\"collective\": {\"name\", \"number\", \"site\", \"seconds\", \"waiting\"},\n"
        "\"waits_for\" (ranks), \"site\", \"op\", \"backward_of\", \"doing\".\n"
        "Unknown fields are left out.\n\n"
        "exit codes: 0 ok, 1 there is no such JOB, 2 usage");
}

static int top_show(const struct top_options *options, const char *job)
{
    static const char chunk[] = "local job, once, json, interval = ...\n"
                                "exit_code = require 'accelhost.top'(job ~= '' and job or nil,\n"
                                "  {once = once == '1', json = json == '1', interval = tonumber(interval)})\n";
    char interval[32];
    snprintf(interval, sizeof interval, "%.9g", options->interval);
    char *words[] = {(char *)job, (char *)(options->once ? "1" : "0"), (char *)(options->json ? "1" : "0"), interval};
    return ah_host_run_command("top", chunk, "=top", 4, words);
}

int ah_cli_top(int argc, char **argv)
{
    struct top_options options = {.interval = 2};
    const char *job = "";
    int first = ah_flags_read("top", top_flags, FLAGS, print_help, argc, argv, &options);
    if (first < 0)
        return -1 - first;
    if (first < argc) {
        job = argv[first];
        /* Options may follow the job too. */
        int next = ah_flags_read("top", top_flags, FLAGS, print_help, argc - first - 1, argv + first + 1, &options);
        if (next < 0)
            return -1 - next;
        if (first + 1 + next < argc)
            return ah_usage("top", "unexpected argument '%s'", argv[first + 1 + next]);
    }
    return top_show(&options, job);
}
