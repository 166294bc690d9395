/* Pre-tokenizers: steps that cut a text into words, the model's inputs. */
#pragma once

#include <stdbool.h>

#include "text/pattern.h"

enum ah_splitter_kind {
    AH_SPLIT_BERT,        /* at space, and every mark of punctuation for itself */
    AH_SPLIT_WHITESPACE,  /* \w+ or [^\w\s]+ */
    AH_SPLIT_SPACES,      /* at space */
    AH_SPLIT_BYTE_LEVEL,  /* GPT-2's rule: a space belongs to the next word */
    AH_SPLIT_METASPACE,   /* blanks become `mark`, which begins a word */
    AH_SPLIT_PATTERN,     /* at matches of a pattern */
    AH_SPLIT_DIGITS,      /* at numbers */
    AH_SPLIT_PUNCTUATION, /* at BERT's punctuation */
};

/* Treatment of the matches at which a text is cut: dropped, words, parts of a neighbour, or words with neighbours of
 * their kind. */
enum ah_split_behavior {
    AH_SPLIT_REMOVED,
    AH_SPLIT_ISOLATED,
    AH_SPLIT_TO_PREVIOUS,
    AH_SPLIT_TO_NEXT,
    AH_SPLIT_CONTIGUOUS,
};

/* A mark is inserted before a word never, always, or if it is a text's first. */
enum ah_split_prepend { AH_PREPEND_NEVER, AH_PREPEND_ALWAYS, AH_PREPEND_FIRST };

struct ah_splitter {
    enum ah_splitter_kind kind;
    bool add_prefix_space, use_regex; /* of the byte level */
    uint32_t mark;                    /* of Metaspace, with the next two */
    enum ah_split_prepend prepend;
    bool split;
    struct ah_pattern pattern; /* of PATTERN; inverted: cut at the text between matches */
    bool invert;
    enum ah_split_behavior behavior; /* of PATTERN, DIGITS and PUNCTUATION */
};

struct ah_split_work {
    struct ah_chars text;
    struct ah_spans words, matches;
};

/* Cut `text` into `words` by the steps in order, without empty ones. Blanks and marks may be inserted before words,
 * with the source range of the word's first character. */
int ah_split(const struct ah_splitter *step, int steps, struct ah_chars *text, struct ah_spans *words,
             struct ah_split_work *work);

void ah_split_work_close(struct ah_split_work *work);
void ah_splitter_close(struct ah_splitter *step);
