/* Commands: one file each, found by the table in main.c. A command receives the arguments after its name and returns
 * the process's exit code: 0 ok, 1 script error, 2 usage; launch returns ah_job_exit_code (cli/job/job.h). */
#pragma once

enum { AH_MOST_COMMANDS = 32 };

struct ah_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

/* The commands; each returns the program's exit code. */
int ah_cli_run(int argc, char **argv);
int ah_cli_completion(int argc, char **argv);
int ah_cli_config(int argc, char **argv);
int ah_cli_data(int argc, char **argv);
int ah_cli_env(int argc, char **argv);
int ah_cli_plot(int argc, char **argv);
int ah_cli_estimate_memory(int argc, char **argv);
int ah_cli_jupyter(int argc, char **argv);
int ah_cli_generate(int argc, char **argv);
int ah_cli_repl(int argc, char **argv);
int ah_cli_sweep(int argc, char **argv);
int ah_cli_test(int argc, char **argv);
int ah_cli_top(int argc, char **argv);
int ah_cli_types(int argc, char **argv);
/* `commands`: all of them, at most AH_MOST_COMMANDS, ended by a NULL name. */
int ah_cli_help(const struct ah_command *commands, int argc, char **argv);
