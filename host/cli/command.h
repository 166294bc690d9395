/* Commands: one file each, found by the table in main.c. A command gets the arguments after its name and returns the
 * process's exit code (0 ok, 1 script error, 2 usage; launch has its own, see cli/launch.h). */
#ifndef AH_CLI_COMMAND_H
#define AH_CLI_COMMAND_H

struct ah_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

/* The commands; each returns the program's exit code. */
int ah_cli_run(int argc, char **argv);
int ah_cli_launch(int argc, char **argv);
int ah_cli_data(int argc, char **argv) __attribute__((weak));

/* "usage error" on stderr with the nearest known word, if one is near; returns 2. */
int ah_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The entry of the NULL-ended list nearest to `word` by edit distance, NULL when none is within 2. */
const char *ah_nearest(const char *word, const char *const *list);

#endif
