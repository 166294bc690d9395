/* Signals that a program wants to know of and not end by: they are noted, and asked for when it suits. */
#pragma once

#include <stdatomic.h>

/* Ctrl-C was pressed at a prompt while code ran there (bind/lua/interrupt.c): a wait for other processes ends with
 * AH_EINTR and sets AH_INTERRUPT_HEEDED. */
enum { AH_INTERRUPT_PRESSED = 1, AH_INTERRUPT_HEEDED };
extern atomic_int ah_interrupted;

/* The number of "TERM", "USR1", "INT" or "HUP"; 0 for any other name. */
int ah_signal_number(const char *name);

/* Write a text to stderr, in a signal handler or a forked child too. */
void ah_signal_write(const char *text);

/* Note a signal from now on. AH_EIO. */
int ah_signal_catch(int number);

/* The name of the first signal that was noted since the last call, NULL when there was none. */
const char *ah_signal_take(void);
