/* Decoders: steps that rewrite the texts of tokens, which are joined at the end. */
#pragma once

#include "base/memory/array.h"
#include "text/pattern.h"

enum ah_decoder_kind {
    AH_DECODE_WORDPIECE,     /* blanks between words, none before `content` */
    AH_DECODE_BYTE_LEVEL,    /* all tokens as the bytes of their characters */
    AH_DECODE_METASPACE,     /* blanks for marks, none at the beginning where `left` */
    AH_DECODE_REPLACE,       /* `content` for each match of `pattern` */
    AH_DECODE_BYTE_FALLBACK, /* the bytes of tokens as <0x0A> */
    AH_DECODE_FUSE,          /* all tokens as one */
    AH_DECODE_STRIP,         /* up to `start` and `stop` characters `mark` less at the ends */
};

struct ah_decoder {
    enum ah_decoder_kind kind;
    char *content;
    bool cleans, left;
    uint32_t mark;
    int64_t start, stop;
    struct ah_pattern pattern;
};

/* The texts of tokens, one after the other. */
struct ah_decoded {
    struct ah_text text;
    size_t *end; /* of each token */
    size_t count, room;
};

/* Append to the last token, and end it. */
int ah_decoded_append(struct ah_decoded *to, const void *bytes, size_t count);
int ah_decoded_end(struct ah_decoded *to);
void ah_decoded_close(struct ah_decoded *decoded);

/* Rewrite `tokens` by the steps in order. Bytes that are no UTF-8 become U+FFFD. */
int ah_decoder_apply(const struct ah_decoder *step, int steps, struct ah_decoded *tokens);
void ah_decoder_close(struct ah_decoder *step);
