/* The keys as libedit gets them, and the signals that arrive while it waits for one. */
#pragma once

#include <histedit.h>
#include <stdbool.h>

/* Have the editor read by this. */
void ah_keys_open(EditLine *edit);
/* Begin to read a line: catch signals, and let the terminal mark pasted text. */
void ah_keys_begin(void);
/* End the reading of a line. True when Ctrl-C has ended it; a signal that ends programs is raised. */
bool ah_keys_end(void);
