/* Lines of several ranks, held for a moment so that the same line of several ranks becomes one.
 *
 * A queue in the order of arrival. A rank's line joins the first equal one after every line of that rank, so the
 * order of each rank's own lines is kept; else it is appended. Times are ah_now_ns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AH_LINES_RANKS = 256, AH_LINES_WORDS = AH_LINES_RANKS / 64 };

struct ah_line {
    uint64_t ranks[AH_LINES_WORDS]; /* bit set: the ranks that wrote it */
    int count;                      /* of them */
    bool unfinished;                /* the rank ended without ending the line */
    int64_t due;                    /* when it has waited long enough */
    size_t bytes;
    char *text; /* without a newline */
    uint64_t hash;
    uint64_t next; /* place of the next line of the same bucket */
};

struct ah_lines;

int ah_lines_open(struct ah_lines **out, int ranks);
void ah_lines_close(struct ah_lines *lines);

/* Add a line that `rank` wrote. False when the queue is full: drop the first, and retry. */
bool ah_lines_add(struct ah_lines *lines, int rank, const char *text, size_t bytes, bool unfinished, int64_t due);
/* The rank writes no more: no line waits for it. */
void ah_lines_end(struct ah_lines *lines, int rank);
/* The first line, or NULL. Valid until it is dropped. */
const struct ah_line *ah_lines_first(const struct ah_lines *lines);
/* Return whether every rank has written this line or never will. */
bool ah_lines_complete(const struct ah_lines *lines, const struct ah_line *line);
/* Drop the first line. */
void ah_lines_drop(struct ah_lines *lines);
