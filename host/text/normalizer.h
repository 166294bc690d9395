/* Normalizers: steps that rewrite a text before it is split. */
#ifndef AH_TEXT_NORMALIZER_H
#define AH_TEXT_NORMALIZER_H

#include <stdbool.h>

#include "text/chars.h"

enum ah_normalizer_kind {
    AH_NORMALIZE_BERT,
    AH_NORMALIZE_LOWERCASE,
    AH_NORMALIZE_NFD,
    AH_NORMALIZE_NFC,
    AH_NORMALIZE_NFKD,
    AH_NORMALIZE_NFKC,
    AH_NORMALIZE_STRIP_ACCENTS,
};

struct ah_normalizer {
    enum ah_normalizer_kind kind;
    bool clean_text, ideographs, strip_accents, lowercase; /* of BERT's */
};

/* Rewrite `text` by the steps in order; `spare` is workspace. The source range of a character is that of the characters
 * that it was made from; of joined characters, of the first. */
int ah_normalize(const struct ah_normalizer *step, int steps, struct ah_chars *text, struct ah_chars *spare);

#endif
