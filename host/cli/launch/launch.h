/* Run a job by its settings, for `accelhost launch` and `accelhost test`. */
#pragma once

#include "config/settings.h"

/* Run a script (the words after a command's options: [-e|-m] SCRIPT ARGUMENTS...) with these settings, and report
 * failures. Returns the exit code of launch. */
int ah_launch_run(const struct ah_settings *settings, int argc, char **argv);

/* The command: returns the exit code of the program. */
int ah_cli_launch(int argc, char **argv);
