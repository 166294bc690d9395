/* The file of lines that were typed: an entry a line, private, bounded, shared by all prompts of a user. A prompt adds
 * to it and never rewrites lines of others. */
#pragma once

#include <stddef.h>

enum { AH_HISTORY_MOST = 5000 }; /* entries that are kept; the file is cut when it has twice as many */

/* Call `each` with the entries, oldest first; the folders of the path are made. Does nothing where it cannot. */
void ah_history_read(const char *path, void (*each)(void *context, const char *text), void *context);
/* Add an entry. */
void ah_history_add(const char *path, const char *text);
