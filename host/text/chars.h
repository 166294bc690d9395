/* A text as characters, each with its range of source characters. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/memory/array.h"
#include "base/status/status.h"

/* Bytes of the longest text. */
#define AH_CHARS_MOST (1 << 29)

/* from and to count the characters of the source, half open. */
struct ah_char {
    uint32_t c;
    int32_t from, to;
};

struct ah_chars {
    struct ah_char *at;
    size_t count, room;
};

/* Reserve room for `more` further characters. AH_ENOMEM leaves the text unchanged. */
int ah_chars_reserve(struct ah_chars *chars, size_t more);

/* Append `c` with the source range of `like`. There must be room. */
static inline void ah_chars_push(struct ah_chars *chars, uint32_t c, const struct ah_char *like)
{
    chars->at[chars->count++] = (struct ah_char){.c = c, .from = like->from, .to = like->to};
}

/* Decode UTF-8 (ah_utf8_next) into `chars`, replacing its contents. AH_EINVAL beyond AH_CHARS_MOST bytes. */
int ah_chars_read(struct ah_chars *chars, const char *text, size_t bytes);

static inline void ah_chars_swap(struct ah_chars *a, struct ah_chars *b)
{
    struct ah_chars held = *a;
    *a = *b;
    *b = held;
}

void ah_chars_close(struct ah_chars *chars);

/* Characters [begin, end) of a text. */
struct ah_span {
    size_t begin, end;
};

struct ah_spans {
    struct ah_span *at;
    size_t count, room;
};

/* Append a span, unless it is empty. */
static inline int ah_spans_add(struct ah_spans *spans, size_t begin, size_t end)
{
    if (begin == end)
        return 0;
    AH_TRY(ah_grow(&spans->at, spans->count + 1, &spans->room, sizeof *spans->at));
    spans->at[spans->count++] = (struct ah_span){begin, end};
    return 0;
}

void ah_spans_close(struct ah_spans *spans);
