/* accelhost repl: opens a host and hands it to lua/accelhost/repl, which reads and runs. At a terminal Ctrl-C is
 * the affair of bind/lua/interrupt.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "base/status/status.h"
#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/script.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/interrupt.h"
#include "cli/process/seed.h"
#include "cli/process/shutdown.h"
#include "cli/process/status_signal.h"
#include "comm/join/rank.h"

struct repl_options {
    bool jit_off;
    double processes;
};

#define FIELD(name) offsetof(struct repl_options, name)
static const struct ah_flag repl_flags[] = {
    {"--jit", AH_FLAG_ON_OFF, FIELD(jit_off), .value = "on|off", .help = "LuaJIT's compiler (default on)"},
    {"--num_processes", AH_FLAG_VALUE, FIELD(processes), {.kind = AH_VALUE_COUNT, 1, 256}, "N",
     "run each line in N processes; %rank R LINE runs it in one, %restart starts new ones"},
};
enum { FLAGS = sizeof repl_flags / sizeof *repl_flags };

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost [repl] [options]\n"
        "       accelhost [repl] [options] -i script.lua [arguments]\n\n"
        "A prompt: typed code runs, an expression shows its value (not before a last ';'). With -i a script runs\n"
        "first, and its variables are available. From a pipe or file the lines run without prompts.\n\n"
        "  ? NAME       describes a name, ?? NAME shows its source; ? alone describes the prompt\n"
        "  Tab          completes names, fields, methods and files\n"
        "  Ctrl-C       ends running code, or clears the line; Ctrl-D ends the prompt\n\noptions:");
    ah_flags_print(repl_flags, FLAGS);
    ah_help_print("\nexit codes: 0 ok, 1 an error when the input is no terminal, 2 usage");
}

int ah_cli_repl(int argc, char **argv)
{
    char chunk[80];
    struct repl_options options = {0};
    struct ah_control_block *control;
    struct ah_host host = {0};
    int status, first = ah_flags_read("repl", repl_flags, FLAGS, print_help, argc, argv, &options);
    if (first < 0)
        return -1 - first;
    argc -= first;
    argv += first;
    if (argc && strcmp(argv[0], "-i"))
        return ah_usage("repl", "expected -i before a script, got '%s'", argv[0]);
    if (argc == 1)
        return ah_usage("repl", "-i expects a script");
    if (argc && ah_script_check("repl", argc - 1, argv + 1))
        return 2;
    ah_notice_set_output(ah_shutdown_report);
    setvbuf(stdout, NULL, _IOLBF, 0);
    AH_TRYGO(ah_rank_attach(&control), failed);
    AH_TRYGO(ah_cli_seed(control), failed);
    struct ah_host_options settings = {.jit_off = options.jit_off, .give_up = ah_shutdown_give_up};
    AH_TRYGO(ah_host_open(&host, &settings), failed);
    if (ah_shutdown_take_exit(&host) < 0)
        return ah_shutdown_fail(&host, ah_host_error(&host));
    if (!control) {
        ah_rank_show_alone();
        ah_interrupt_watch(host.lua); /* until the prompt handles Ctrl-C itself */
    }
    ah_status_signal_watch(host.lua);
    snprintf(chunk, sizeof chunk, "exit_code = require('accelhost.repl').start(%.0f, ...)", options.processes);
    status = ah_host_set_arguments(&host, argc ? argv[1] : "", argc ? argc - 2 : 0, argv + 2);
    if (status == 0)
        status = ah_host_run_text(&host, chunk, strlen(chunk), "=accelhost/repl", argc ? argc - 1 : 0, argv + 1);
    if (status < 0)
        return ah_shutdown_fail(&host, ah_host_error(&host));
    lua_getglobal(host.lua, "exit_code");
    return ah_shutdown_finish(&host, (int)lua_tointeger(host.lua, -1));
failed:
    fprintf(stderr, "accelhost: %s\n", ah_error_text());
    return 1;
}
