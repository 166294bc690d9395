/* The questions of `accelhost config`, on a terminal. */
#pragma once

#include "config/settings.h"

/* Set the number of ranks for this machine, unless it is set; threads per rank follow from it at the launch. */
int ah_config_suggest_ranks(struct ah_settings *settings);
/* "2 processors, 7.6 GiB of memory, no GPU" */
void ah_config_print_machine(void);

/* Ask for the common settings on stdout and read the answers from stdin; current values are the defaults, and an
 * invalid answer is asked for again. AH_EIO when the answers end before the questions. */
int ah_config_ask(struct ah_settings *settings);

/* Print every setting, and the unsupported options, as Markdown. */
void ah_config_print_keys(void);
