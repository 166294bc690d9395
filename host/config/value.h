/* Validation of a setting's text, from the command line, a variable or a file.
 *
 * `what` names the place in errors ("--timeout", "train.yaml:3: timeout"); these are AH_EINVAL. */
#pragma once

#include <stddef.h>

#include "base/status/status.h"

enum ah_value_kind {
    AH_VALUE_TEXT,    /* anything but nothing */
    AH_VALUE_NUMBER,
    AH_VALUE_WHOLE,
    AH_VALUE_COUNT,   /* a whole number, or "auto" for the processors that this process may use */
    AH_VALUE_BYTES,   /* 500M, 2G, 1.5GB, powers of 1024 */
    AH_VALUE_SWITCH,  /* yes or no, in all the words for it; 1 or 0 */
    AH_VALUE_CHOICE,  /* one of `words`, in any case; its place among them, from 0 */
    AH_VALUE_SHARES,  /* whole numbers above 0 with colons between them, as 2:1; their number */
    AH_VALUE_MACHINES, /* a whole number N, or MIN:MAX; its most */
    AH_VALUE_STREAMS, /* a choice of streams: 0 none, 1 output, 2 errors, 3 both; or by rank, 0:3,1:2 */
};

struct ah_value_rule {
    enum ah_value_kind kind;
    double least, most;
    const char *words; /* separated by blanks */
};

/* Check a text and store its number (0 if its kind has none). */
int ah_value_read(const struct ah_value_rule *rule, const char *what, const char *text, double *number);

/* Return the streams of a rank that a checked text of AH_VALUE_STREAMS names: bit 0 output, bit 1 errors. */
int ah_value_streams(const char *text, int rank);

/* The place of a word among `words` (separated by blanks), whatever the case; -1 when it is none. */
int ah_value_place(const char *words, const char *word);

/* The number as one would write it: a text's own spelling does not count when values are compared. */
void ah_value_write(const struct ah_value_rule *rule, const char *text, double number, char *out, size_t room);
