/* What a text became: tokens in a row, and how rows are cut and put together. */
#ifndef AH_TEXT_ENCODING_H
#define AH_TEXT_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_token {
    int32_t id;
    int32_t from, to; /* characters of its text, half open */
    int32_t word;     /* which word of its text, -1 for tokens that stand in no text */
    uint8_t type;
    int8_t sequence;  /* 0 or 1: the text that it comes from, -1: none */
    bool special;     /* put there by the template */
    bool added;       /* an added token, which has these blanks at its ends: */
    int32_t leading, trailing;
};

struct ah_encoding {
    struct ah_token *at;
    size_t count, room;
};

/* Put a token behind the others. */
int ah_encoding_push(struct ah_encoding *encoding, struct ah_token token);
void ah_encoding_close(struct ah_encoding *encoding);

enum ah_truncation { AH_TRUNCATE_NOT, AH_TRUNCATE_LONGEST, AH_TRUNCATE_FIRST, AH_TRUNCATE_SECOND };

/* How many tokens of texts of `a` and `b` tokens (b < 0: no second text) stay, so that together there are at most
 * `most`: into *keep. AH_EINVAL when the one that is to be cut is too short for that. */
int ah_truncation_keep(int64_t a, int64_t b, enum ah_truncation how, int64_t most, int64_t keep[2]);

/* The pieces of `keep` tokens that a text of `count` is cut into, from its beginning or (`left`) its end, each with
 * `stride` tokens of the one before: how many there are, at least 1, and where piece i lies. A text that is not cut is
 * one piece; where nothing is kept the first piece is empty and the second is the text. */
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

/* How many special tokens a template has. */
int64_t ah_template_specials(const struct ah_template *template);

/* Append to `out` what the template says of `a` and `b`, without its special tokens unless `specials`. */
int ah_template_apply(const struct ah_template *template, const struct ah_encoding *a, const struct ah_encoding *b,
                      bool specials, struct ah_encoding *out);

#endif
