/* Normalizers: steps that rewrite a text before it is split. */
#pragma once

#include <stdbool.h>

#include "text/charsmap.h"
#include "text/pattern.h"

enum ah_normalizer_kind {
    AH_NORMALIZE_BERT,
    AH_NORMALIZE_LOWERCASE,
    AH_NORMALIZE_NFD,
    AH_NORMALIZE_NFC,
    AH_NORMALIZE_NFKD,
    AH_NORMALIZE_NFKC,
    AH_NORMALIZE_STRIP_ACCENTS,
    AH_NORMALIZE_STRIP,    /* space at the ends */
    AH_NORMALIZE_NMT,      /* control characters go, space of several kinds becomes a blank */
    AH_NORMALIZE_PREPEND,  /* `content` before a text that is not empty */
    AH_NORMALIZE_REPLACE,  /* `content` for each match of a pattern */
    AH_NORMALIZE_CHARSMAP, /* SentencePiece's table */
};

struct ah_normalizer {
    enum ah_normalizer_kind kind;
    bool clean_text, ideographs, strip_accents, lowercase; /* of BERT's */
    bool left, right;                                      /* of STRIP */
    struct ah_pattern pattern;
    struct ah_chars content;
    struct ah_charsmap charsmap;
};

/* Rewrite `text` by the steps in order; `spare` is workspace. The source range of a character is that of the characters
 * that it was made from; of joined characters, of the first. */
int ah_normalize(const struct ah_normalizer *step, int steps, struct ah_chars *text, struct ah_chars *spare);

void ah_normalizer_close(struct ah_normalizer *step);
