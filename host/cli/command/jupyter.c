/* accelhost jupyter: install or remove the kernel specification, or be the kernel of a notebook. Everything but the
 * options is in the plugin: the sockets (host/jupyter) and the kernel in Lua (lua/accelhost/jupyter). */
#include <lua.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/process/program.h"
#include "base/status/nearest.h"
#include "base/status/notice.h"
#include "base/status/status.h"
#include "bind/format/jupyter.h"
#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"
#include "cli/process/shutdown.h"
#include "comm/join/rank.h"

struct jupyter_options {
    bool user, sys_prefix, jit_off;
    const char *prefix, *name, *file;
};

#define FIELD(name) offsetof(struct jupyter_options, name)
static const struct ah_flag place_flags[] = {
    {"--user", AH_FLAG_SWITCH, FIELD(user), .help = "install in the user's folder of Jupyter (default)"},
    {"--sys-prefix", AH_FLAG_SWITCH, FIELD(sys_prefix), .help = "install in the active Python environment"},
    {"--prefix", AH_FLAG_TEXT, FIELD(prefix), .value = "P", .help = "install in P/share/jupyter"},
    {"--name", AH_FLAG_TEXT, FIELD(name), .value = "NAME", .help = "name of the kernel (default accelhost)"},
};
static const struct ah_flag kernel_flags[] = {
    {"-f", AH_FLAG_TEXT, FIELD(file), .value = "FILE", .help = "of kernel: the connection file, which Jupyter writes"},
    {"--jit", AH_FLAG_ON_OFF, FIELD(jit_off), .value = "on|off", .help = "of kernel: LuaJIT's compiler (default on)"},
};
enum {
    PLACE_FLAGS = sizeof place_flags / sizeof *place_flags,
    KERNEL_FLAGS = sizeof kernel_flags / sizeof *kernel_flags,
};

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost jupyter install [options]\n"
        "       accelhost jupyter uninstall [options]\n"
        "       accelhost jupyter kernel -f FILE\n\n"
        "Notebooks in Lua, in JupyterLab, Jupyter Notebook, VS Code and every other front end of Jupyter. install\n"
        "writes the kernel specification, by which a front end finds this program and starts it as a kernel.\n\n"
        "options:");
    for (int i = 0; i < KERNEL_FLAGS; i++)
        ah_flags_print_line(kernel_flags[i].name, kernel_flags[i].value, kernel_flags[i].help);
    ah_flags_print(place_flags, PLACE_FLAGS);
    ah_help_print("\nexit codes: 0 ok, 1 an error, 2 usage");
}

/* Run Lua of the plugin in an open host; the exit code. */
static int jupyter_run(struct ah_host *host, const char *chunk, int argc, char **argv)
{
    int status = ah_jupyter_bind(host->lua);
    if (status < 0) {
        fprintf(stderr, "accelhost jupyter: %s\n", ah_error_text());
        return 1;
    }
    status = ah_host_run_text(host, chunk, strlen(chunk), "=accelhost/jupyter", argc, argv);
    if (status < 0) {
        fprintf(stderr, "accelhost jupyter: %s\n", ah_host_error(host));
        return 1;
    }
    lua_getglobal(host->lua, "exit_code");
    return (int)lua_tointeger(host->lua, -1);
}

static int jupyter_place(const char *action, const struct jupyter_options *options)
{
    char program[3072];
    struct ah_host host = {0};
    if (options->user + options->sys_prefix + !!options->prefix > 1)
        return ah_usage("jupyter", "%s: expected one of --user, --sys-prefix and --prefix", action);
    if (!ah_program_path(program, sizeof program)) {
        fputs("accelhost jupyter: the path of this program is unknown\n", stderr);
        return 1;
    }
    const char *const words[] = {action, options->sys_prefix ? "sys-prefix" : options->prefix ? "prefix" : "user",
                                 options->prefix ? options->prefix : "", options->name ? options->name : "accelhost",
                                 program};
    if (ah_host_open(&host, &(struct ah_host_options){0}) < 0) {
        fprintf(stderr, "accelhost jupyter: %s\n", ah_error_text());
        return 1;
    }
    int code = jupyter_run(&host, "exit_code = require 'accelhost.jupyter.install'(...)", 5, (char **)words);
    ah_host_close(&host);
    return code;
}

static int jupyter_kernel(const struct jupyter_options *options)
{
    struct ah_control_block *control;
    struct ah_host host = {0};
    struct ah_host_options settings = {.jit_off = options->jit_off, .give_up = ah_shutdown_give_up};
    if (!options->file)
        return ah_usage("jupyter", "kernel: -f expects a connection file");
    ah_notice_set_output(ah_shutdown_report);
    if (ah_rank_attach(&control) < 0 || ah_host_open(&host, &settings) < 0) {
        fprintf(stderr, "accelhost jupyter: %s\n", ah_error_text());
        return 1;
    }
    if (ah_shutdown_take_exit(&host) < 0)
        return ah_shutdown_fail(&host, ah_host_error(&host));
    char *words[] = {(char *)options->file};
    int code = ah_host_set_arguments(&host, "", 0, NULL) < 0
                   ? 1 : jupyter_run(&host, "exit_code = require 'accelhost.jupyter'(...)", 1, words);
    return ah_shutdown_finish(&host, code);
}

int ah_cli_jupyter(int argc, char **argv)
{
    struct jupyter_options options = {0};
    const char *action = argc ? argv[0] : "";
    if (argc && (!strcmp(action, "--help") || !strcmp(action, "-h"))) {
        print_help();
        return 0;
    }
    static const char *const actions[] = {"install", "uninstall", "kernel", NULL};
    bool kernel = !strcmp(action, "kernel");
    if (!argc)
        return ah_usage("jupyter", "expected install, uninstall or kernel, got nothing");
    if (!kernel && strcmp(action, "install") && strcmp(action, "uninstall")) {
        const char *near = ah_nearest(action, actions);
        return near ? ah_usage("jupyter", "there is no action '%s' (did you mean '%s'?)", action, near)
                    : ah_usage("jupyter", "expected install, uninstall or kernel, got '%s'", action);
    }
    int read = ah_flags_read("jupyter", kernel ? kernel_flags : place_flags, kernel ? KERNEL_FLAGS : PLACE_FLAGS,
                             print_help, argc - 1, argv + 1, &options);
    if (read < 0)
        return -1 - read;
    if (read < argc - 1)
        return ah_usage("jupyter", "%s: unexpected '%s'", action, argv[1 + read]);
    return kernel ? jupyter_kernel(&options) : jupyter_place(action, &options);
}
