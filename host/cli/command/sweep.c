/* accelhost sweep: options here; all else is Lua (lua/accelhost/sweep), in a new Lua host. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status/nearest.h"
#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"

struct sweep_options {
    const char *study, *output, *launcher;
    double trials, parallel, processes, seed, timeout, retries, format, serve;
    bool quiet, reports;
};

static const char formats[] = "csv json yaml lua";

#define FIELD(name) offsetof(struct sweep_options, name)
static const struct ah_flag sweep_flags[] = {
    {"-n", AH_FLAG_VALUE, FIELD(trials), {.kind = AH_VALUE_WHOLE, 1, 1e9}, "TRIALS",
     "configurations to try in all, those of earlier runs among them"},
    {"--trials", AH_FLAG_VALUE, FIELD(trials), {.kind = AH_VALUE_WHOLE, 1, 1e9}, "N", NULL},
    {"-j", AH_FLAG_VALUE, FIELD(parallel), {.kind = AH_VALUE_WHOLE, 1, 4096}, "PARALLEL",
     "trials that run at once (default: processors / processes of a trial)"},
    {"--parallel", AH_FLAG_VALUE, FIELD(parallel), {.kind = AH_VALUE_WHOLE, 1, 4096}, "N", NULL},
    {"--study", AH_FLAG_TEXT, FIELD(study), .value = "DIR",
     .help = "where the study is kept (default FILE's name with .study)"},
    {"--num_processes", AH_FLAG_VALUE, FIELD(processes), {.kind = AH_VALUE_WHOLE, 1, 4096}, "N",
     "processes of each trial (default 1)"},
    {"--seed", AH_FLAG_VALUE, FIELD(seed), {.kind = AH_VALUE_WHOLE, 0, 9e15}, "N", "of the sampler (default 0)"},
    {"--timeout", AH_FLAG_VALUE, FIELD(timeout), {.kind = AH_VALUE_NUMBER, 0.001, 1e9}, "S",
     "time limit of a trial in seconds"},
    {"--retries", AH_FLAG_VALUE, FIELD(retries), {.kind = AH_VALUE_WHOLE, 0, 1e6}, "N",
     "number of further attempts of a failed trial (default 0)"},
    {"--launcher", AH_FLAG_TEXT, FIELD(launcher), .value = "local|slurm",
     .help = "launcher of trials: this process (default), or sbatch, whose jobs must see the study's folder"},
    {"--quiet", AH_FLAG_SWITCH, FIELD(quiet), .help = "print nothing about trials"},
    {"-o", AH_FLAG_TEXT, FIELD(output), .value = "FILE",
     .help = "of report: the page (default STUDY/report.html; -: none); of export: the file (default stdout)"},
    {"--output", AH_FLAG_TEXT, FIELD(output), .help = NULL},
    {"--format", AH_FLAG_VALUE, FIELD(format), {.kind = AH_VALUE_CHOICE, .words = formats}, "FORMAT",
     "of export: csv, json, or the best parameters as yaml or lua (default by FILE's name, else csv)"},
    {"--serve", AH_FLAG_VALUE, FIELD(serve), {.kind = AH_VALUE_WHOLE, 0, 65535}, "PORT",
     "of report: no file, but a page on this host that follows a running study (0: any port)"},
    {"--reports", AH_FLAG_SWITCH, FIELD(reports), .help = "of export to csv: a row for each report"},
};
enum { FLAGS = sizeof sweep_flags / sizeof *sweep_flags, MOST_STUDIES = 64 };

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost sweep FILE [options]\n"
        "       accelhost sweep status STUDY\n"
        "       accelhost sweep retry STUDY\n"
        "       accelhost sweep best STUDY\n"
        "       accelhost sweep report STUDY [-o FILE.html | --serve PORT]\n"
        "       accelhost sweep compare STUDY STUDY...\n"
        "       accelhost sweep export STUDY [--format FORMAT] [--reports] [-o FILE]\n\n"
        "Runs the trials of a search for hyperparameters. FILE is a Lua script that returns\n"
        "{script = or objective =, space =, metric =, direction =, sampler =, pruner =, trials =, ...},\n"
        "or YAML with the same keys or those of Weights & Biases; metrics = and directions = are lists for several\n"
        "metrics. The same command resumes a study that was interrupted or killed. Ctrl-C ends trials at their next\n"
        "report, twice at once.\n\n"
        "status prints the state of a study, retry has its failed trials run again when the sweep is started, best\n"
        "prints its best parameters as a Lua table and writes best.yaml, report prints the results and writes a page\n"
        "with pictures and all trials, compare prints studies of the same metrics next to each other, export writes\n"
        "the trials for other programs.\n\n"
        "options:");
    ah_flags_print(sweep_flags, FLAGS);
    ah_help_print("\nexit codes: 0 ok, 1 no trial has a value, 2 usage or a definition that is wrong, 130 interrupted");
}

/* `paths`: the file or the study; of compare `count` studies. */
static int sweep_run(const struct sweep_options *options, const char *what, int count, char **paths)
{
    static const char chunk[] = "exit_code = require 'accelhost.sweep.command'.main(...)\n";
    enum { NUMBERS = 8, TEXT = 32, WORDS = 7 };
    const double numbers[NUMBERS] = {options->trials, options->parallel, options->processes, options->seed,
                                     options->timeout, options->retries, options->format, options->serve};
    char text[NUMBERS][TEXT];
    char *words[WORDS + NUMBERS + MOST_STUDIES] = {(char *)what, paths[0],
                                    (char *)(options->study ? options->study : ""),
                                    (char *)(options->quiet ? "quiet" : ""),
                                    (char *)(options->output ? options->output : ""),
                                    (char *)(options->reports ? "reports" : ""),
                                    (char *)(options->launcher ? options->launcher : "")};
    for (int i = 0; i < NUMBERS; i++) {
        text[i][0] = 0;
        if (numbers[i] >= 0)
            snprintf(text[i], TEXT, "%.17g", numbers[i]);
        words[WORDS + i] = text[i];
    }
    memcpy(words + WORDS + NUMBERS, paths + 1, (size_t)(count - 1) * sizeof *words);
    return ah_host_run_command("sweep", chunk, "=accelhost/sweep", WORDS + NUMBERS + count - 1, words);
}

/* Options may precede, separate and follow the words, which are moved to the front of argv. */
int ah_cli_sweep(int argc, char **argv)
{
    static const char *const others[] = {"status", "retry", "best", "report", "compare", "export", NULL};
    struct sweep_options options = {.trials = -1, .parallel = -1, .processes = -1, .seed = -1, .timeout = -1,
                                    .retries = -1, .format = -1, .serve = -1};
    int count = 0;
    for (int at = 0; at < argc;) {
        int read = ah_flags_read("sweep", sweep_flags, FLAGS, print_help, argc - at, argv + at, &options);
        if (read < 0)
            return -1 - read;
        at += read;
        if (at < argc)
            argv[count++] = argv[at++];
    }
    const char *what = "run";
    for (int i = 0; count && others[i]; i++)
        if (!strcmp(argv[0], others[i]) && access(argv[0], F_OK))
            what = others[i];
    bool report = !strcmp(what, "report"), export = !strcmp(what, "export");
    if (options.output && !report && !export)
        return ah_usage("sweep", "-o is an option of report and export");
    if (options.serve >= 0 && (!report || options.output))
        return ah_usage("sweep", "--serve is an option of report, without -o");
    if ((options.reports || options.format >= 0) && !export)
        return ah_usage("sweep", "--format and --reports are options of export");
    int first = strcmp(what, "run") != 0;
    const char *near = first || !count || !access(argv[0], F_OK) ? NULL : ah_nearest(argv[0], others);
    if (near)
        return ah_usage("sweep", "there is neither a command nor a file '%s' (did you mean '%s'?)", argv[0], near);
    if (count == first)
        return first ? ah_usage("sweep", "%s: expected a study's folder", what) : ah_usage("sweep", "expected a file");
    bool compare = !strcmp(what, "compare");
    if (compare && (count - first < 2 || count - first > MOST_STUDIES))
        return ah_usage("sweep", "compare: expected 2 to %d studies' folders, got %d", MOST_STUDIES, count - first);
    if (count > first + 1 && !compare)
        return ah_usage("sweep", "unexpected argument '%s'", argv[first + 1]);
    return sweep_run(&options, what, count - first, argv + first);
}
