/* Settings of a job and the source of each: a flag overrides an ACCELHOST_* variable (which overrides equivalent
 * variables of other programs), a variable overrides the configuration file, the file overrides the default.
 *
 * settings.def is the one table of settings; parsing of flags, variables and files, --help, --show_config and
 * `accelhost config` are driven by it. In a name '-' equals '_'. Errors are AH_EINVAL and begin with the source. */
#pragma once

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
    const char *fallback_text; /* the default in words */
    const char *value;         /* placeholder of the value in the help; NULL for a switch */
    const char *variable;      /* of the environment */
    const char *others;        /* equivalent variables of other programs, separated by blanks */
    const char *aliases;       /* other names, and short flags ("-q"), separated by blanks */
    const char *only;          /* the only accepted values, separated by blanks; others fail with `reason` */
    const char *never;         /* values that fail with `reason`, separated by blanks */
    const char *help, *reason;
    bool not_in_file;
    bool nested;               /* in a file it is a map; its keys are names of refused rows */
};

/* The supported settings in the order of enum ah_setting, then the refused ones, then a NULL name. */
extern const struct ah_setting_row ah_setting_rows[];

enum ah_origin { AH_FROM_DEFAULT, AH_FROM_FILE, AH_FROM_OTHER_VARIABLE, AH_FROM_VARIABLE, AH_FROM_FLAG };

struct ah_setting_value {
    char *text; /* NULL: not set */
    double number;
    enum ah_origin origin;
    char *where;         /* "--timeout", "ACCELHOST_TIMEOUT", "train.yaml:3"; NULL for a default */
    char *under, *under_where; /* a value that it overrides, and its source, or NULL */
};

struct ah_settings {
    struct ah_setting_value value[AH_SETTINGS];
    char *file; /* the configuration file that was read, or NULL */
    char *idle; /* its accepted keys that have no effect here: "rdzv_backend, ..." or NULL */
};

/* Initialize every setting to its default. */
int ah_settings_open(struct ah_settings *settings);
void ah_settings_close(struct ah_settings *settings);

/* Is a setting set by a flag, a variable or a file? */
static inline bool ah_setting_is_set(const struct ah_settings *settings, enum ah_setting setting)
{
    return settings->value[setting].origin != AH_FROM_DEFAULT;
}

/* Return the row of a name as a user may spell it ("--num-processes", "use_cpu", "fsdp_offload_params"), or NULL. */
const struct ah_setting_row *ah_setting_find(const char *name);
/* Return the known name nearest to a misspelt one, or NULL. */
const char *ah_setting_nearest(const char *name);

/* Set a row's value unless one of a later enum ah_origin is set; a refused row accepts only its `only` values. `what`
 * names the source and the setting in errors, `where` is the source that --show_config prints. */
int ah_settings_set(struct ah_settings *settings, const struct ah_setting_row *row, const char *text,
                    enum ah_origin origin, const char *what, const char *where);
/* Reset a setting to its default (which may be no value). AH_ENOMEM. */
int ah_settings_unset(struct ah_settings *settings, enum ah_setting setting);
/* Set the values of the environment variables. */
int ah_settings_read_variables(struct ah_settings *settings);
/* Set the values of a file: JSON if its name ends with .json, else YAML. */
int ah_settings_read_file(struct ah_settings *settings, const char *path);
/* Write the path of the default configuration file; AH_EINVAL if there is no folder for it. */
int ah_settings_default_path(char *path, size_t room);

/* Write the value as a user would, "" if it is not set. */
void ah_settings_write(const struct ah_settings *settings, enum ah_setting setting, char *text, size_t room);
