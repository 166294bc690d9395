/* Settings of a job and where each comes from: a flag goes before an ACCELHOST_* variable (and that before those of
 * others that mean the same), a variable before the configuration file, the file before the default.
 *
 * settings.def is the one table of what there is: the reading of flags, variables and files, --help, --show_config and
 * `accelhost config` all follow it. In a name '-' is '_'. Errors are AH_EINVAL and begin with the place. */
#ifndef AH_CONFIG_SETTINGS_H
#define AH_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/value.h"

enum ah_setting {
#define SETTING(id, ...) AH_SETTING_##id,
#define REFUSED(id, ...)
#include "config/settings.def"
#undef SETTING
#undef REFUSED
    AH_SETTINGS
};

enum ah_setting_group {
    AH_GROUP_PROCESSES,
    AH_GROUP_TRAINING,
    AH_GROUP_RESTARTS,
    AH_GROUP_LIMITS,
    AH_GROUP_OUTPUT,
    AH_GROUP_PROGRAM,
    AH_GROUPS,
};

struct ah_setting_row {
    const char *name;
    enum ah_setting_group group;
    struct ah_value_rule rule;
    const char *fallback;      /* the default; NULL: not set */
    const char *fallback_text; /* what it is then, in words */
    const char *value;         /* what the help calls the value; NULL for a switch */
    const char *variable;      /* of the environment */
    const char *others;        /* variables of others that mean the same, separated by blanks */
    const char *aliases;       /* other names, and short flags ("-q"), separated by blanks */
    const char *only;          /* the only values taken, separated by blanks; others fail with the reason */
    const char *never;         /* values that fail with the reason */
    const char *help, *reason;
    bool not_in_file;
    bool nested;               /* in a file it is a map; its keys are looked up as names of refused rows */
};

/* Those that apply come first, in the order of enum ah_setting, then those that are refused; ended by a NULL name. */
extern const struct ah_setting_row ah_setting_rows[];

enum ah_origin { AH_FROM_DEFAULT, AH_FROM_FILE, AH_FROM_OTHER_VARIABLE, AH_FROM_VARIABLE, AH_FROM_FLAG };

struct ah_setting_value {
    char *text; /* NULL: not set */
    double number;
    enum ah_origin origin;
    char *where;         /* "--timeout", "ACCELHOST_TIMEOUT", "train.yaml:3"; NULL for a default */
    char *under, *under_where; /* another value that it goes before, or NULL */
};

struct ah_settings {
    struct ah_setting_value value[AH_SETTINGS];
    char *file; /* the configuration file that was read, or NULL */
    char *idle; /* its keys that are no settings here and say what is the case anyway: "rdzv_backend, ..." or NULL */
};

/* Everything has its default. */
int ah_settings_open(struct ah_settings *settings);
void ah_settings_close(struct ah_settings *settings);

/* The row of a name as a user may spell it ("--num-processes", "use_cpu", "fsdp_offload_params"); NULL when there is
 * none. */
const struct ah_setting_row *ah_setting_find(const char *name);
/* The name that a misspelt one may have meant; NULL. */
const char *ah_setting_nearest(const char *name);

/* Give a row a value, in the order of enum ah_origin; a refused row takes only what it says. `what` names the place and
 * the setting in errors, `where` the place for --show_config. */
int ah_settings_set(struct ah_settings *settings, const struct ah_setting_row *row, const char *text,
                    enum ah_origin origin, const char *what, const char *where);
/* Forget what was said; it has no value then, or its default. AH_ENOMEM. */
int ah_settings_unset(struct ah_settings *settings, enum ah_setting setting);
/* What the environment says. */
int ah_settings_read_variables(struct ah_settings *settings);
/* What a file says: JSON when its name ends with .json, else YAML. */
int ah_settings_read_file(struct ah_settings *settings, const char *path);
/* Where the file lies of which nothing is said: 0, or AH_EINVAL when no folder for it is known. */
int ah_settings_default_path(char *path, size_t room);

/* The value as one writes it, "" when it is not set. */
void ah_settings_write(const struct ah_settings *settings, enum ah_setting setting, char *text, size_t room);

#endif
