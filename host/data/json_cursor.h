/* Reading JSON from bytes that may be continued later: the position, blanks and texts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returned, instead of an error, when the bytes end within a text or value: an error only if the file ends there. */
enum { AH_JSON_NEEDS_MORE = 1 };

struct ah_json_cursor {
    const char *at, *end, *line_start;
    int64_t line;
    bool open;    /* the file continues after the end */
    char **plain; /* memory of texts without their escapes, and its room */
    size_t *plain_room;
};

/* AH_EIO with the line and column of `at`. */
int ah_json_wrong(const struct ah_json_cursor *c, const char *at, const char *what);

/* The bytes end here: AH_JSON_NEEDS_MORE, or AH_EIO where the file does. */
int ah_json_short(const struct ah_json_cursor *c, const char *what);

/* Pass blanks and ends of lines. */
void ah_json_blanks(struct ah_json_cursor *c);

/* Read a text: c->at is after its first quote, and on return after its last. The bytes are the file's, or *c->plain's
 * where there are escapes, until the next text is read. 0, AH_JSON_NEEDS_MORE or an error. */
int ah_json_text(struct ah_json_cursor *c, const char **text, size_t *length);
