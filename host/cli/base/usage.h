/* Wrong usage of a command, reported in one way. */
#pragma once

/* Print the text and a hint at --help on stderr; return 2. */
int ah_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Print a failure that a command's arguments or settings met; returns 2 with the hint at --help, for AH_ENOMEM 1 and no
 * hint. */
int ah_refuse(const char *command, int status, const char *text);
