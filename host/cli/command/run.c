/* accelhost [run] script.lua args...: one rank, or a whole run in one process. Opens a host (cli/process/host.h), runs
 * the script in it and ends the process (cli/process/shutdown.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "base/status/status.h"
#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/script.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"
#include "cli/process/interrupt.h"
#include "cli/process/parent.h"
#include "cli/process/seed.h"
#include "cli/process/shutdown.h"
#include "cli/process/status_signal.h"
#include "comm/join/rank.h"

struct run_options {
    const char *params;
    bool jit_off, gc_stress;
    double max_memory, script_fd;
};

#define FIELD(name) offsetof(struct run_options, name)
static const struct ah_flag run_flags[] = {
    {"--jit", AH_FLAG_ON_OFF, FIELD(jit_off), .value = "on|off", .help = "LuaJIT's compiler (default on)"},
    {"--gc-stress", AH_FLAG_SWITCH, FIELD(gc_stress),
     .help = "collect garbage at every tensor op (finds lifetime errors)"},
    {"--max_memory", AH_FLAG_VALUE, FIELD(max_memory), {.kind = AH_VALUE_BYTES, 1 << 20, 1e15}, "SIZE",
     "memory that the script may allocate, such as 2G"},
    {"--params", AH_FLAG_TEXT, FIELD(params), .value = "FILE",
     .help = "values for accelhost.args or parse_args: YAML, JSON or a Lua table"},
    {"--script_fd", AH_FLAG_VALUE, FIELD(script_fd), {.kind = AH_VALUE_WHOLE, 0, 1e6}, "FD",
     "read the script's text from an open file"},
};
enum { FLAGS = sizeof run_flags / sizeof *run_flags };

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost [run] [options] script.lua [arguments]\n"
        "       accelhost [run] [options] -e CODE [arguments]\n"
        "       accelhost [run] [options] -m MODULE [arguments]\n\n"
        "Runs a Lua script in this process. Arguments after the script are its own (the global `arg`).\n"
        "A script named - is read from stdin; -m runs the file that require would load for the name.\n\noptions:");
    ah_flags_print(run_flags, FLAGS);
    ah_help_print("\nexit codes: 0 ok, 1 script error, 2 usage");
}

/* Limit the memory of this process beyond the program's present memory: its heaps, not memory that ranks share. */
static int limit_memory(double bytes)
{
    struct rlimit limit;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    /* size resident shared text lib data */
    if (file && fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    if (getrlimit(RLIMIT_DATA, &limit))
        return ah_fail(AH_EIO, "--max_memory: %s", strerror(errno));
    double wanted = bytes + (double)pages * (double)sysconf(_SC_PAGESIZE);
    if (limit.rlim_cur == RLIM_INFINITY || wanted < (double)limit.rlim_cur)
        limit.rlim_cur = (rlim_t)wanted;
    if (setrlimit(RLIMIT_DATA, &limit))
        return ah_fail(AH_EIO, "--max_memory: %s", strerror(errno));
    return 0;
}

/* The text of the file behind a descriptor that other processes may be reading too; the caller frees it. */
static int read_descriptor(int fd, char **out, size_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info))
        return ah_fail(AH_EIO, "--script_fd %d: %s", fd, strerror(errno));
    char *text = malloc((size_t)info.st_size + 1);
    AH_TRY_MEMORY(text, "out of memory");
    size_t have = 0;
    while (have < (size_t)info.st_size) {
        ssize_t n = pread(fd, text + have, (size_t)info.st_size - have, (off_t)have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(fd);
    *out = text;
    *bytes = have;
    return 0;
}

static int run_descriptor(struct ah_host *host, int fd, const char *name, int argc, char **argv)
{
    char chunk[256];
    AH_FREED char *text = NULL;
    size_t bytes = 0;
    AH_TRY(read_descriptor(fd, &text, &bytes));
    snprintf(chunk, sizeof chunk, strcmp(name, "-") ? "@%s" : "=stdin", name);
    /* As from a file: a first line that begins with # is passed over. */
    size_t skip = 0;
    while (bytes && text[0] == '#' && skip < bytes && text[skip] != '\n')
        skip++;
    return ah_host_run_text(host, text + skip, bytes - skip, chunk, argc, argv);
}

static int run_script(struct ah_host *host, const struct run_options *options, int argc, char **argv)
{
    if (!strcmp(argv[0], "-e")) {
        AH_TRY(ah_host_set_arguments(host, "-e", argc - 2, argv + 2));
        return ah_host_run_text(host, argv[1], strlen(argv[1]), "=-e", argc - 2, argv + 2);
    }
    AH_TRY(ah_host_set_arguments(host, argv[0], argc - 1, argv + 1));
    if (options->script_fd >= 0)
        return run_descriptor(host, (int)options->script_fd, argv[0], argc - 1, argv + 1);
    return ah_host_run_file(host, argv[0], argc - 1, argv + 1);
}

/* A file of parameters that the script did not ask for. */
static int report_unread(struct ah_host *host)
{
    static const char chunk[] = "require('accelhost.util.params').report_unread()";
    return getenv("ACCELHOST_PARAMS") ? ah_host_run_text(host, chunk, strlen(chunk), "=params", 0, NULL) : 0;
}

int ah_cli_run(int argc, char **argv)
{
    struct run_options options = {.script_fd = -1};
    struct ah_control_block *control;
    struct ah_host host = {0};
    char module[4096];
    int status = 0, first = ah_flags_read("run", run_flags, FLAGS, print_help, argc, argv, &options);
    if (first < 0)
        return -1 - first;
    argc -= first;
    argv += first;
    if (options.script_fd < 0 && ah_script_check("run", argc, argv))
        return 2;
    ah_notice_set_output(ah_shutdown_report);
    /* A line is written when it is printed, into pipes and files too: a job that is killed has logged its last step. It
     * costs 1.4 us a line. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    AH_TRYGO(ah_rank_attach(&control), failed);
    AH_TRYGO(ah_cli_seed(control), failed);
    AH_TRYGO(ah_parent_attach(), failed);
    if (options.params)
        setenv("ACCELHOST_PARAMS", options.params, 1);
    struct ah_host_options settings = {options.jit_off, options.gc_stress, ah_shutdown_give_up};
    AH_TRYGO(ah_host_open(&host, &settings), failed);
    if (options.max_memory > 0)
        AH_TRYGO(limit_memory(options.max_memory), failed);
    if (ah_shutdown_take_exit(&host) < 0)
        return ah_shutdown_fail(&host, ah_host_error(&host));
    if (!control) {
        ah_rank_show_alone();
        ah_interrupt_watch(host.lua);
    }
    ah_status_signal_watch(host.lua);
    if (options.script_fd < 0 && ah_script_is_module(argv[0])) {
        if (ah_host_find_module(&host, argv[1], module, sizeof module) < 0)
            return ah_shutdown_finish(&host, ah_usage("run", "%s", ah_error_text()));
        *++argv = module;
        argc--;
    }
    status = run_script(&host, &options, argc, argv);
    if (status == 0)
        status = report_unread(&host);
    if (status == AH_ELUA)
        return ah_shutdown_fail(&host, ah_host_error(&host));
    if (status < 0)
        return ah_shutdown_fail(&host, ah_error_text());
    return ah_shutdown_finish(&host, 0);
failed:
    fprintf(stderr, "accelhost: %s\n", ah_error_text());
    return 1;
}
