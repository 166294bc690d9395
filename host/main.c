/* argv -> command. First repairs inherited streams and signals. Independent of tensors. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/numeric/level.h"
#include "base/status/nearest.h"
#include "base/status/status.h"
#include "base/status/version.h"
#include "cli/base/help_page.h"
#include "cli/command/command.h"
#include "cli/command/init.h"
#include "cli/launch/launch.h"

static int main_help(int argc, char **argv);

static const struct ah_command commands[] = {
    {"run", "run a Lua script in this process (the default)", ah_cli_run},
    {"repl", "run Lua line by line: a prompt", ah_cli_repl},
    {"jupyter", "install the Jupyter kernel, for notebooks in Lua", ah_cli_jupyter},
    {"launch", "run a Lua script in several processes", ah_cli_launch},
    {"config", "make or show the file of settings that launch reads", ah_cli_config},
    {"data", "download a data set", ah_cli_data},
    {"generate", "continue a text, or answer, with the model of a folder", ah_cli_generate},
    {"estimate-memory", "print the memory that training a model needs", ah_cli_estimate_memory},
    {"test", "check this machine with a small job", ah_cli_test},
    {"sweep", "search hyperparameters: many trials of a script", ah_cli_sweep},
    {"top", "show the state of every rank of your running jobs", ah_cli_top},
    {"plot", "draw the curves of runs: in the terminal, as SVG or PNG", ah_cli_plot},
    {"env", "print versions, machine and settings", ah_cli_env},
    {"help", "print the documentation of a name: accelhost help nn.Linear", main_help},
    {"types", "write definition files for the Lua language server", ah_cli_types},
    {"completion", "print the completion script of bash, zsh or fish", ah_cli_completion},
    {NULL, NULL, NULL},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] - 1 };

static int main_help(int argc, char **argv)
{
    return ah_cli_help(commands, argc, argv);
}

static void print_help(void)
{
    ah_help_print("accelhost: train in Lua, in one process or many\n\n"
                  "usage: accelhost                          a prompt\n"
                  "       accelhost [-i] script.lua [arguments]\n"
                  "       accelhost -e CODE\n"
                  "       accelhost COMMAND [options]\n\n"
                  "commands:");
    for (int i = 0; i < COMMAND_COUNT; i++)
        ah_help_row(commands[i].name, commands[i].summary);
    ah_help_print("\n'accelhost COMMAND --help' lists a command's options, 'accelhost help NAME' describes a name,\n"
                  "'accelhost help WORDS' searches, 'accelhost help examples' prints where the examples are.\n"
                  "  --version  print the version\n"
                  "  --help     this text");
}

/* Open closed standard streams: a descriptor opened later must not become the output. */
static void open_standard_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
}

static void do_nothing(int number)
{
}

/* The parent may ignore SIGCHLD, which survives exec. SIGXFSZ (a file over its size limit) shall be a write error and
 * not end the process; a handler, unlike SIG_IGN, is not inherited by programs that we start. */
static void reset_signals(void)
{
    signal(SIGCHLD, SIG_DFL);
    signal(SIGXFSZ, do_nothing);
}

/* Commands of other programs, and the equivalent here. */
static const char *const main_elsewhere[][2] = {
    {"python", "name the script alone: accelhost script.lua"},
    {"tensorboard", "its files are written (log_with = \"tensorboard\") and drawn: accelhost plot RUN"},
    {"torchrun", "here: accelhost launch --num_processes N script.lua"},
    {NULL, NULL},
};

static const char *said_elsewhere(const char *word)
{
    for (int i = 0; main_elsewhere[i][0]; i++)
        if (!strcmp(main_elsewhere[i][0], word))
            return main_elsewhere[i][1];
    return NULL;
}

/* A word that is neither a command, a file nor formed like a file name: usage, with the nearest command. */
static bool is_no_command(const char *word)
{
    const char *known[COMMAND_COUNT + 2] = {NULL};
    if (!access(word, F_OK) || word[0] == '-' || strpbrk(word, "./"))
        return false;
    for (int i = 0; i < COMMAND_COUNT; i++)
        known[i] = commands[i].name;
    known[COMMAND_COUNT] = "--version";
    const char *near = ah_nearest(word, known);
    if (!near && !strcmp(word, "version"))
        near = "--version";
    const char *said = said_elsewhere(word);
    fprintf(stderr, "accelhost: there is neither a command nor a file '%s' (", word);
    if (!said && near)
        fprintf(stderr, "did you mean '%s'?)\n", near);
    else
        fprintf(stderr, "%s)\n", said ? said : "accelhost --help lists the commands");
    return true;
}

static int main_dispatch(int argc, char **argv)
{
    if (argc < 2 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        return ah_cli_repl(0, argv + 1);
    if (argc < 2) {
        print_help();
        return 2;
    }
    const char *word = argv[1];
    if (!strcmp(word, "-i"))
        return ah_cli_repl(argc - 1, argv + 1);
    if (!strcmp(word, "--version") || !strcmp(word, "-v")) {
        puts("accelhost " AH_VERSION);
        return 0;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
        print_help();
        return 0;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i].name, word))
            return commands[i].run(argc - 2, argv + 2);
    if (is_no_command(word))
        return 2;
    return ah_cli_run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    open_standard_streams();
    reset_signals();
    ah_init_if_first();
    if (ah_level_choose() < 0) {
        fprintf(stderr, "accelhost: %s\n", ah_error_text());
        return 2;
    }
    int code = main_dispatch(argc, argv);
    if (fflush(stdout) && code == 0) {
        fprintf(stderr, "accelhost: cannot write: %s\n", strerror(errno));
        code = 1;
    }
    return code;
}
