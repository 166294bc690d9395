/* Texts that are safe to print on a terminal. */
#pragma once

#include <stddef.h>

/* The number of bytes of the UTF-8 character at `at`, of which `left` > 0 bytes can be read; 0 if there is none. */
int ah_utf8_length(const void *at, size_t left);

/* Replace in place, by one '?' each, the control characters of `text` (U+0000 to U+001F, U+007F to U+009F) except line
 * feeds and tabs, and each byte that is not part of a UTF-8 character. The text may become shorter. */
void ah_make_printable(char *text);
