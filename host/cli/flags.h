/* Options of a command, from a table: `--name value` or `--name=value`, '-' and '_' alike inside a name. */
#ifndef AH_CLI_FLAGS_H
#define AH_CLI_FLAGS_H

#include <stddef.h>

enum ah_flag_kind {
    AH_FLAG_NUMBER, /* double field */
    AH_FLAG_WHOLE,  /* the same, whole numbers only */
    AH_FLAG_BYTES,  /* the same: 500M, 2G, 1.5GB, powers of 1024 */
    AH_FLAG_SWITCH, /* bool field, set without a value */
    AH_FLAG_ON_OFF, /* bool field, set by "off" and cleared by "on" */
};

struct ah_flag {
    const char *name;
    enum ah_flag_kind kind;
    size_t field; /* in the struct of options */
    double least, most;
    const char *value, *help; /* value: what the help calls it */
};

/* Read the options of `command` at the front of argv into `options`. Returns the index of the first word that is none
 * ("-e" and "-" are none, "--" is passed over), or -1 - exit code: 0 after --help, which calls `help`, or 2 after wrong
 * usage, which is told. */
int ah_flags_read(const char *command, const struct ah_flag *flags, int count, void (*help)(void), int argc,
                  char **argv, void *options);
/* Their lines for the help. */
void ah_flags_print(const struct ah_flag *flags, int count);

#endif
