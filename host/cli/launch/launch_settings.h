/* The settings of a launch: reading of flags, variables and configuration file, --help and --show_config. */
#pragma once

#include "cli/machines/machines.h"
#include "config/settings.h"

struct ah_environment;

/* Read all of them for a command; settings is open then, whatever the result. Prints on stderr which value overrides
 * another, unless --quiet, and errors. Returns the index of the first word that is no option, or -1 - exit code.
 * `help` prints the text of --help. */
int ah_launch_settings_read(struct ah_settings *settings, const char *command, void (*help)(void), int argc,
                            char **argv);

/* Write the path of the configuration file: `flag` or, when that is NULL, the variable's or else the default one; ""
 * for none. *named: it is from the flag or variable, so the file must exist. AH_EINVAL. */
int ah_launch_config_path(const char *flag, char *path, size_t room, bool *named);

/* The options by groups, for --help. */
void ah_launch_settings_help(void);
/* Print every setting, its value and its source. */
void ah_launch_settings_show(const struct ah_settings *settings);
/* Are ranks that are killed replaced? */
bool ah_launch_replaces(const struct ah_settings *settings);

/* cli/launch/launch_processes.c: a number of ranks that depends on the GPUs, and whether those that were asked for are
 * there. AH_EINVAL. */
int ah_launch_settle_processes(struct ah_settings *settings);

/* cli/launch/launch_machines.c: the largest and the smallest number of machines, the ranks on this one, and the options
 * shared by all; contradictions are AH_EINVAL. */
int ah_launch_machines(const struct ah_settings *settings);
int ah_launch_least_machines(const struct ah_settings *settings);
int ah_launch_ranks(const struct ah_settings *settings);
void ah_launch_describe_machines(const struct ah_settings *settings, struct ah_machines_options *out);
int ah_launch_check_machines(const struct ah_settings *settings);

/* cli/launch/launch_engine.c: shall another launcher start the ranks? Then options that it lacks are AH_EINVAL. */
bool ah_launch_is_handed_over(const struct ah_settings *settings);
int ah_launch_check_engine(const struct ah_settings *settings);
/* Replace this process by that launcher (exec), for ranks that run `command` ("accelhost", "run", ...) with these
 * variables, or (dry_run) print the command. Returns only then, or with AH_EIO, AH_EINVAL. */
int ah_launch_hand_over(const struct ah_settings *settings, char *const *command, const char *const *variables);
