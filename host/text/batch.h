/* Many texts at once, in parallel when they are long enough for it. */
#ifndef AH_TEXT_BATCH_H
#define AH_TEXT_BATCH_H

#include "text/tokenizer.h"

struct ah_source {
    const char *text;
    size_t bytes;
};

struct ah_batch {
    const struct ah_source *first, *second; /* second: NULL without pairs */
    size_t count;
    bool specials; /* with the template's special tokens */
    enum ah_truncation truncation;
    int64_t most; /* tokens, with special ones */
    bool cut_left;
};

/* Encode each text, or pair, into its place of `rows`, which are empty at first and are the caller's to close also
 * after an error. The error is that of the first text that has one. */
int ah_batch_encode(struct ah_tokenizer *tokenizer, const struct ah_batch *batch, struct ah_encoding *rows);

#endif
