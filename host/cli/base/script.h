/* The script that a command is asked to run: a file, a piece of code after -e, a module after -m, or the text of stdin
 * or a pipe. */
#pragma once

#include <stdbool.h>

/* Check the words after a command's options: [-e|-m] SCRIPT ARGUMENTS... Returns 0, or 2 after reporting the error. */
int ah_script_check(const char *command, int argc, char **argv);

/* Is the next word the name of a module? */
bool ah_script_is_module(const char *word);

/* Can a script's text be read only once, or by this process only? "-" (stdin), a pipe, a device. */
bool ah_script_is_stream(const char *path);

/* Read such a script to its end; *fd gets a descriptor of a file without a name that holds it. */
int ah_script_keep(const char *path, int *fd);
