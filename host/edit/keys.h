/* The keys as libedit gets them, and the signals that come while it waits for one. */
#ifndef AH_EDIT_KEYS_H
#define AH_EDIT_KEYS_H

#include <histedit.h>
#include <stdbool.h>

/* Have the editor read by this. */
void ah_keys_open(EditLine *edit);
/* A line is going to be read: signals are taken, the terminal marks what is pasted. */
void ah_keys_begin(void);
/* It was read, or not. True when Ctrl-C has ended it; a signal that ends programs is raised. */
bool ah_keys_end(void);

#endif
