/* Pre-tokenizers: steps that cut a text into words, the model's inputs. */
#ifndef AH_TEXT_SPLITTER_H
#define AH_TEXT_SPLITTER_H

#include <stdbool.h>

#include "text/chars.h"

enum ah_splitter_kind {
    AH_SPLIT_BERT,       /* at space, and every mark of punctuation for itself */
    AH_SPLIT_WHITESPACE, /* \w+ or [^\w\s]+ */
    AH_SPLIT_SPACES,     /* at space */
    AH_SPLIT_BYTE_LEVEL, /* GPT-2's rule: a space belongs to the next word */
};

struct ah_splitter {
    enum ah_splitter_kind kind;
    bool add_prefix_space, use_regex; /* of the byte level */
};

/* Characters [begin, end) of a text. */
struct ah_span {
    size_t begin, end;
};

struct ah_spans {
    struct ah_span *at;
    size_t count, room;
};

/* Cut `text` into `words` by the steps in order, without empty ones. Blanks may be inserted before words
 * (add_prefix_space), with the source range of the word's first character. The spares are workspace. */
int ah_split(const struct ah_splitter *step, int steps, struct ah_chars *text, struct ah_spans *words,
             struct ah_chars *spare, struct ah_spans *spare_words);

void ah_spans_close(struct ah_spans *spans);

#endif
