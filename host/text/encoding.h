/* The tokens of a text; truncation, pieces, and templates that join texts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_token {
    int32_t id;
    int32_t from, to; /* characters of its text, half open */
    int32_t word;     /* number of its word in its text, -1 for tokens of no text */
    uint8_t type;
    int8_t sequence;  /* 0 or 1: its text, -1: none */
    bool special;     /* inserted by the template */
    bool added;       /* an added token, which has these blanks at its ends: */
    int32_t leading, trailing;
};

struct ah_encoding {
    struct ah_token *at;
    size_t count, room;
};

/* Append a token. */
int ah_encoding_push(struct ah_encoding *encoding, struct ah_token token);
void ah_encoding_close(struct ah_encoding *encoding);

enum ah_truncation { AH_TRUNCATE_NOT, AH_TRUNCATE_LONGEST, AH_TRUNCATE_FIRST, AH_TRUNCATE_SECOND };

/* Compute the numbers of tokens to keep of texts of `a` and `b` tokens (b < 0: no second text), at most `most` in all.
 * AH_EINVAL when the text to be truncated is too short for that. */
int ah_truncation_keep(int64_t a, int64_t b, enum ah_truncation how, int64_t most, int64_t keep[2]);

/* The pieces of `keep` tokens of a text of `count`, from its beginning or (`left`) its end, each with `stride` tokens
 * of the one before: their number, at least 1, and the range of piece i. A text that is not cut is one piece; with
 * `keep` 0 the first piece is empty and the second is the text. */
int64_t ah_pieces_count(int64_t count, int64_t keep, int64_t stride);
void ah_pieces_place(int64_t count, int64_t keep, int64_t stride, bool left, int64_t i, int64_t *begin, int64_t *end);

/* An item is a text (sequence 0 or 1) or a special token. */
struct ah_template_item {
    int32_t sequence, id, type;
};

struct ah_template {
    struct ah_template_item *item;
    size_t count, room;
};

/* Return the number of a template's special tokens. */
int64_t ah_template_specials(const struct ah_template *template);

/* Append `a`, `b` and, with `specials`, the template's special tokens to `out` in the template's order. */
int ah_template_apply(const struct ah_template *template, const struct ah_encoding *a, const struct ah_encoding *b,
                      bool specials, struct ah_encoding *out);
