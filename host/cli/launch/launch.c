/* accelhost launch: settings in, attempts out. Each attempt is a new job with a new control block
 * (cli/launch/attempt.h); after a failed one the next begins, at most --max_restarts times. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "base/status/status.h"
#include "cli/base/error_file.h"
#include "cli/base/help_page.h"
#include "cli/base/script.h"
#include "cli/launch/attempt.h"
#include "cli/launch/busy.h"
#include "cli/launch/launch.h"
#include "cli/launch/launch_settings.h"
#include "cli/output/rank_logs.h"
#include "comm/join/rank.h"

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost launch [options] script.lua [arguments]\n"
        "       accelhost launch [options] -e CODE [arguments]\n"
        "       accelhost launch [options] -m MODULE [arguments]\n\n"
        "Runs a script in several processes (ranks) of this host, or of several on each of which the same command is\n"
        "given (--num_machines), and supervises them. A script named - is read from stdin; -m runs the file that\n"
        "require would load for the name. Every option is a key of the configuration file too; 'accelhost config\n"
        "keys' lists keys, variables, and refused options of other launchers.\n\n"
        "options:");
    ah_launch_settings_help();
    ah_help_print(
        "\nkill -USR2 of the launcher makes every rank write its traceback; accelhost top shows their state.\n"
        "\nexit codes: 0 ok, 2 usage, 3 a rank failed, 4 a collective timed out, 128+n ended by signal n");
}

enum { VARIABLES = 24, VARIABLE = 512 };

struct launch {
    const struct ah_settings *settings;
    struct ah_attempt_options attempt;
    char variable[VARIABLES][VARIABLE];
    const char *variables[VARIABLES + 1];
    int count;
    int attempt_number, restarts; /* its number among all, and the number of failed ones before it */
    int signal;            /* that arrived during the machines' next rendezvous */
};

static double launch_number(const struct launch *launch, enum ah_setting setting)
{
    return launch->settings->value[setting].number;
}

/* Were some of the GPUs chosen? */
static bool chooses_gpus(const struct launch *launch)
{
    const char *ids = launch->settings->value[AH_SETTING_gpu_ids].text;
    return ids && strcasecmp(ids, "all") && !launch_number(launch, AH_SETTING_cpu);
}

/* The ranks' command line; NULL when memory is out. */
static char **make_command(const struct launch *launch, int script, int argc, char **argv)
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
    if (launch_number(launch, AH_SETTING_jit))
        command[at++] = (char *)"--jit=off";
    if (launch_number(launch, AH_SETTING_gc_stress))
        command[at++] = (char *)"--gc-stress";
    if (launch_number(launch, AH_SETTING_max_memory) > 0) {
        snprintf(memory, TEXT, "--max_memory=%.0f", launch_number(launch, AH_SETTING_max_memory));
        command[at++] = memory;
    }
    if (script >= 0) {
        snprintf(text, TEXT, "--script_fd=%d", script);
        command[at++] = text;
    }
    memcpy(command + at, argv, (size_t)argc * sizeof *command);
    return command;
}

/* A variable of the ranks. */
static void launch_pass(struct launch *launch, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void launch_pass(struct launch *launch, const char *format, ...)
{
    va_list args;
    if (launch->count == VARIABLES)
        return;
    va_start(args, format);
    vsnprintf(launch->variable[launch->count], VARIABLE, format, args);
    va_end(args);
    launch->variables[launch->count] = launch->variable[launch->count];
    launch->variables[++launch->count] = NULL;
}

/* Pass a setting that a rank reads itself, if it is set. */
static void pass_setting(struct launch *launch, const char *name, enum ah_setting setting)
{
    char text[VARIABLE - 64];
    ah_settings_write(launch->settings, setting, text, sizeof text);
    if (ah_setting_is_set(launch->settings, setting))
        launch_pass(launch, "%s=%s", name, text);
}

/* Not counted: the program that starts the ranks does that. */
static void pass_variables(struct launch *launch, bool counted)
{
    const char *topics = getenv("ACCELHOST_DEBUG");
    launch->count = 0;
    pass_setting(launch, "ACCELHOST_MIXED_PRECISION", AH_SETTING_mixed_precision);
    pass_setting(launch, "ACCELHOST_GRADIENT_ACCUMULATION_STEPS", AH_SETTING_gradient_accumulation_steps);
    pass_setting(launch, "ACCELHOST_SHARE", AH_SETTING_share);
    pass_setting(launch, "ACCELHOST_USE_CPU", AH_SETTING_cpu);
    pass_setting(launch, "ACCELHOST_PARAMS", AH_SETTING_params);
    if (chooses_gpus(launch))
        pass_setting(launch, "CUDA_VISIBLE_DEVICES", AH_SETTING_gpu_ids);
    if (!launch->attempt.machines)
        pass_setting(launch, "MASTER_ADDR", AH_SETTING_main_process_ip);
    if (!launch->attempt.machines && launch_number(launch, AH_SETTING_main_process_port) > 0)
        pass_setting(launch, "MASTER_PORT", AH_SETTING_main_process_port);
    if (launch_number(launch, AH_SETTING_debug))
        launch_pass(launch, "ACCELHOST_DEBUG=%s%scomm", topics ? topics : "", topics && *topics ? "," : "");
    if (!counted)
        return;
    launch_pass(launch, "ACCELHOST_RESTART_COUNT=%d", launch->attempt_number);
    launch_pass(launch, "TORCHELASTIC_RESTART_COUNT=%d", launch->restarts);
    launch_pass(launch, "TORCHELASTIC_MAX_RESTARTS=%.0f", launch_number(launch, AH_SETTING_max_restarts));
}

/* With live recovery --max_restarts counts these. */
static int launch_replacements(const struct launch *launch)
{
    enum { UNLESS_SET = 3 };
    bool given = ah_setting_is_set(launch->settings, AH_SETTING_max_restarts);
    return given ? (int)launch_number(launch, AH_SETTING_max_restarts) : UNLESS_SET;
}

static void launch_describe(struct launch *launch)
{
    struct ah_job_options *job = &launch->attempt.job;
    bool threads = launch->settings->value[AH_SETTING_num_cpu_threads_per_process].origin != AH_FROM_OTHER_VARIABLE;
    job->ranks = ah_launch_ranks(launch->settings);
    /* OMP_NUM_THREADS reaches the ranks as it is. */
    job->threads = threads ? (int)launch_number(launch, AH_SETTING_num_cpu_threads_per_process) : 0;
    bool given = ah_setting_is_set(launch->settings, AH_SETTING_timeout);
    job->timeout = given ? launch_number(launch, AH_SETTING_timeout) : 0;
    job->stall_warning = launch_number(launch, AH_SETTING_patience);
    job->grace = launch_number(launch, AH_SETTING_grace);
    job->monitor_interval = launch_number(launch, AH_SETTING_monitor_interval);
    job->variables = launch->variables;
    job->recovers = ah_launch_replaces(launch->settings);
    job->replacements = launch_replacements(launch);
    launch->attempt.quiet = launch_number(launch, AH_SETTING_quiet) != 0;
}

static int open_logs(struct launch *launch)
{
    const struct ah_setting_value *value = launch->settings->value;
    const char *folder = value[AH_SETTING_log_dir].text, *tee = value[AH_SETTING_tee].text;
    const char *redirects = value[AH_SETTING_redirects].text;
    bool given = ah_setting_is_set(launch->settings, AH_SETTING_redirects);
    if (!tee)
        tee = folder && !given ? "3" : "0";
    if (!strcmp(tee, "0") && !strcmp(redirects, "0"))
        return 0;
    AH_TRY(ah_rank_logs_open(&launch->attempt.logs, folder, tee, redirects,
                             launch->attempt.job.ranks));
    if (!launch->attempt.quiet)
        fprintf(stderr, "accelhost launch: logs go to %s\n", ah_rank_logs_folder(launch->attempt.logs));
    return 0;
}

static void launch_print(const char *line)
{
    fprintf(stderr, "accelhost launch: %s\n", line);
}

static bool is_signalled(void *context)
{
    struct launch *launch = context;
    if (!launch->signal)
        launch->signal = ah_attempt_signalled(launch->attempt.signals);
    return launch->signal != 0;
}

/* Report the changes since the attempt before, and the place of a machine. */
static void report_machines(const struct launch *launch, int machines, int ranks)
{
    const struct ah_hosts *hosts = ah_machines_hosts(launch->attempt.machines);
    int most = ah_launch_machines(launch->settings), now = hosts->first[hosts->count];
    if (launch->attempt.quiet)
        return;
    if (!machines && launch->attempt_number)
        fprintf(stderr, "accelhost launch: joins the job at its attempt %d, as machine %d of %d, with ranks from %d "
                "on\n", launch->attempt_number, hosts->mine, hosts->count, hosts->first[hosts->mine]);
    else if (!machines && hosts->count < most)
        fprintf(stderr, "accelhost launch: begins on %d of %d machines, %d ranks\n", hosts->count, most, now);
    else if (machines && (machines != hosts->count || ranks != now))
        fprintf(stderr, "accelhost launch: continues on %d of %d machines, %d ranks instead of %d\n", hosts->count,
                most, now, ranks);
}

static int check_share(const struct launch *launch)
{
    const struct ah_setting_value *share = &launch->settings->value[AH_SETTING_share];
    const struct ah_hosts *hosts = ah_machines_hosts(launch->attempt.machines);
    int ranks = hosts->first[hosts->count];
    if (!share->text || share->number == ranks || share->number == hosts->count)
        return 0;
    return ah_fail(AH_EINVAL, "%s: %s is for %.0f ranks or machines, but the job has %d ranks on %d machines",
                   share->where, share->text, share->number, ranks, hosts->count);
}

/* Run the rendezvous of the next attempt. A signal during the first one ends this process, after a report to the
 * others. */
static int meet_machines(struct launch *launch, bool again, bool counts)
{
    struct ah_machines *machines = launch->attempt.machines;
    const struct ah_hosts *hosts = ah_machines_hosts(machines);
    int count = hosts->count, ranks = count ? hosts->first[count] : 0;
    AH_TRY(ah_machines_begin(machines, counts, again ? is_signalled : NULL, launch));
    launch->attempt_number = ah_machines_generation(machines);
    launch->restarts = ah_machines_restarts(machines);
    report_machines(launch, count, ranks);
    return check_share(launch);
}

static int open_machines(struct launch *launch)
{
    struct ah_machines_options options;
    ah_launch_describe_machines(launch->settings, &options);
    ah_notice_set_output(launch->attempt.quiet ? NULL : launch_print);
    AH_TRY(ah_machines_open(&launch->attempt.machines, &options));
    return meet_machines(launch, false, false);
}

static int begin_again(struct launch *launch, bool counts)
{
    if (launch->attempt.machines)
        return meet_machines(launch, true, counts);
    launch->attempt_number++;
    launch->restarts++;
    return 0;
}

/* Return whether another attempt follows one that ended with this code; print the reason. */
static bool goes_on(const struct launch *launch, int code)
{
    int most = launch->attempt.job.recovers ? 0 : (int)launch_number(launch, AH_SETTING_max_restarts);
    const struct ah_attempt_options *attempt = &launch->attempt;
    if (attempt->change) {
        fprintf(stderr, "accelhost launch: %s: all ranks restart\n", attempt->change);
        return true;
    }
    if ((code != 3 && code != 4) || most == 0)
        return false;
    if (attempt->machines && ah_machines_is_lost(attempt->machines))
        fputs("accelhost launch: no restart: machine 0, which ran the rendezvous, is lost\n", stderr);
    else if (!attempt->final && launch->restarts >= most)
        fprintf(stderr, "accelhost launch: attempt %d failed, the last of %d\n", launch->attempt_number,
                launch->attempt_number + 1);
    else if (!attempt->final)
        fprintf(stderr, "accelhost launch: attempt %d failed; all ranks restart (restart %d of at most %d)\n",
                launch->attempt_number, launch->restarts + 1, most);
    return !attempt->final && launch->restarts < most;
}

/* Attempts until one ends well, is ended by a signal or a full disk or was wrong usage, or none is left. */
static int run_attempts(struct launch *launch, int *code)
{
    int status = 0;
    do {
        const struct ah_hosts *hosts = launch->attempt.machines ? ah_machines_hosts(launch->attempt.machines) : NULL;
        pass_variables(launch, true);
        if (launch->attempt.logs)
            AH_TRY(ah_rank_logs_begin(launch->attempt.logs, launch->attempt_number,
                                      hosts ? hosts->first[hosts->mine] : 0));
        AH_TRY(ah_attempt_run(&launch->attempt, code));
        if (!goes_on(launch, *code))
            return 0;
        if (!is_signalled(launch))
            status = begin_again(launch, !launch->attempt.change);
    } while (status == 0 && !launch->signal);
    if (launch->signal) {
        *code = 128 + launch->signal;
        return 0;
    }
    return status;
}

/* Set the variables that cli/job/job_start.c sets for ranks of our own. */
static int hand_over(struct launch *launch, int *code)
{
    const char *transport = getenv("ACCELHOST_WIRE");
    if (launch->attempt.job.script >= 0)
        return ah_fail(AH_EINVAL, "a script that is read from a stream reaches ranks of this launcher only");
    pass_variables(launch, false);
    pass_setting(launch, "ACCELHOST_TIMEOUT", AH_SETTING_timeout);
    pass_setting(launch, "ACCELHOST_PATIENCE", AH_SETTING_patience);
    pass_setting(launch, "ACCELHOST_SECRET_FILE", AH_SETTING_secret_file);
    pass_setting(launch, "ACCELHOST_RDZV_ID", AH_SETTING_rdzv_id);
    pass_setting(launch, "OMP_NUM_THREADS", AH_SETTING_num_cpu_threads_per_process);
    if (transport)
        launch_pass(launch, "ACCELHOST_WIRE=%s", transport);
    *code = 0;
    return ah_launch_hand_over(launch->settings, launch->attempt.job.argv, launch->variables);
}

static void report_proportions(const struct launch *launch)
{
    const struct ah_setting_value *share = &launch->settings->value[AH_SETTING_share];
    int machines = ah_launch_machines(launch->settings);
    fprintf(stderr, "accelhost launch: the %s share each global batch %s\n",
            machines > 1 && share->number == machines ? "machines" : "ranks", share->text);
}

/* For a user who waits at a terminal: a batch system divides the processors itself. */
static void report_busy(const struct launch *launch)
{
    char text[200];
    if (!launch->attempt.quiet && isatty(STDERR_FILENO) && !getenv(AH_JOB_MARK) &&
        ah_busy_describe(launch->attempt.job.ranks, text, sizeof text))
        launch_print(text);
}

static int launch_run(struct launch *launch, int argc, char **argv, int *code)
{
    int status = 0;
    struct ah_job_options *job = &launch->attempt.job;
    launch_describe(launch);
    job->script = -1;
    launch->attempt.signals = -1;
    if (strcmp(argv[0], "-e") && !ah_script_is_module(argv[0]) && ah_script_is_stream(argv[0]))
        AH_TRYGO(ah_script_keep(argv[0], &job->script), out);
    job->argv = make_command(launch, job->script, argc, argv);
    if (!job->argv)
        AH_TRYGO(ah_fail(AH_ENOMEM, "out of memory"), out);
    if (ah_launch_is_handed_over(launch->settings)) {
        status = hand_over(launch, code);
        goto out;
    }
    if (ah_launch_machines(launch->settings) > 1)
        AH_TRYGO(open_machines(launch), out);
    AH_TRYGO(open_logs(launch), out);
    if (launch->settings->value[AH_SETTING_share].text && !launch->attempt.quiet)
        report_proportions(launch);
    report_busy(launch);
    AH_TRYGO(launch->attempt.signals = ah_attempt_signals(), out);
    AH_TRYGO(run_attempts(launch, code), out);
out:
    ah_machines_close(launch->attempt.machines);
    ah_rank_logs_close(launch->attempt.logs);
    if (launch->attempt.signals >= 0)
        close(launch->attempt.signals);
    if (job->script >= 0)
        close(job->script);
    free(job->argv);
    return status < 0 ? status : 0;
}

/* Return the launcher's own error file, and hide it from the ranks. */
static char *take_error_file(const struct ah_settings *settings)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    if (!path || !*path || ah_launch_is_handed_over(settings))
        return NULL;
    char *copy = strdup(path);
    unsetenv("TORCHELASTIC_ERROR_FILE");
    return copy;
}

static void write_error_file(const struct launch *launch, const char *path, const char *error)
{
    static const char name[] = "accelhost launch: ";
    const char *text = error ? error : launch->attempt.failure;
    if (!path || !text)
        return;
    text += strncmp(text, name, sizeof name - 1) ? 0 : sizeof name - 1;
    ah_error_file_write(path, text, error ? 0 : launch->attempt.failure_code, false);
}

int ah_launch_run(const struct ah_settings *settings, int argc, char **argv)
{
    struct launch launch = {.settings = settings};
    int code = 3;
    AH_FREED char *error_file = take_error_file(settings);
    if (launch_run(&launch, argc, argv, &code) < 0) {
        fprintf(stderr, "accelhost launch: %s\n", ah_error_text());
        write_error_file(&launch, error_file, ah_error_text());
        code = 3;
    } else if (code == 3 || code == 4) {
        write_error_file(&launch, error_file, NULL);
    }
    free(launch.attempt.failure);
    return code;
}

int ah_cli_launch(int argc, char **argv)
{
    struct ah_settings settings;
    int code, first = ah_launch_settings_read(&settings, "launch", print_help, argc, argv);
    if (first < 0) {
        code = -1 - first;
    } else if (settings.value[AH_SETTING_show_config].number) {
        ah_launch_settings_show(&settings);
        code = 0;
    } else if (ah_script_check("launch", argc - first, argv + first)) {
        code = 2;
    } else {
        code = ah_launch_run(&settings, argc - first, argv + first);
    }
    ah_settings_close(&settings);
    return code;
}
