/* Options of a command, from a table: `--name value` or `--name=value`, '-' and '_' alike inside a name. */
#pragma once

#include <stddef.h>

#include "config/value.h"

enum ah_flag_kind {
    AH_FLAG_VALUE,   /* double field, the value converted by the rule */
    AH_FLAG_SWITCH,  /* bool field, set without a value */
    AH_FLAG_ON_OFF,  /* bool field, set by "off" and cleared by "on" */
    AH_FLAG_TEXT,    /* const char * field, which keeps pointing at the word */
    AH_FLAG_YES,     /* the same, "true" without a value */
    AH_FLAG_REFUSED, /* wrong usage, with `help` as the reason; a name that ends with * means all that begin so */
};

struct ah_flag {
    const char *name;
    enum ah_flag_kind kind;
    size_t field; /* in the struct of options */
    struct ah_value_rule rule;
    const char *value, *help; /* value: its name in the help; no help: an option that is not shown */
};

/* Read the options of `command` at the front of argv into `options`. Returns the index of the first word that is none
 * ("-", "-e", "-i" and "-m" are none, "--" is passed over), or -1 - exit code: 0 after --help, which calls `help`, or 2
 * after wrong usage, which is reported. */
int ah_flags_read(const char *command, const struct ah_flag *flags, int count, void (*help)(void), int argc,
                  char **argv, void *options);
/* Their lines for the help, the last one of --help itself. */
void ah_flags_print(const struct ah_flag *flags, int count);
/* One such line, wrapped. */
void ah_flags_print_line(const char *name, const char *value, const char *help);
