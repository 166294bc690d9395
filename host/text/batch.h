/* Many texts at once, in parallel when they are long enough for it. */
#pragma once

#include "text/tokenizer.h"

/* A text; with `end`, the ends of its words in it, each of which is encoded by itself: ranges of tokens are of their
 * words. */
struct ah_source {
    const char *text;
    size_t bytes;
    const size_t *end;
    size_t words;
};

struct ah_batch {
    const struct ah_source *first, *second; /* second: NULL without pairs */
    size_t count;
    bool specials; /* with the template's special tokens */
    enum ah_truncation truncation;
    int64_t most; /* tokens, with special ones */
    bool cut_left;
    bool overflow;  /* truncated tokens become further rows, after the text's first */
    int64_t stride; /* tokens that such a row has of the one before */
};

/* A row of tokens, made of text `text`. */
struct ah_row {
    const struct ah_token *at;
    size_t count, text;
};

/* The rows are owned by the encoders that made them, which are held until ah_rows_close. */
struct ah_rows_made {
    struct ah_row *row;
    size_t count;
    struct ah_tokenizer *tokenizer;
    struct ah_encoder *held;
};

/* Encode each text, or pair. `rows` is the caller's to close also after an error, which is that of the first text that
 * has one. */
int ah_batch_encode(struct ah_tokenizer *tokenizer, const struct ah_batch *batch, struct ah_rows_made *rows);
void ah_batch_close(struct ah_rows_made *rows);
