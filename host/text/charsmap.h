/* SentencePiece's table of normalized texts (precompiled_charsmap): a double-array trie over UTF-8, whose values are
 * places in a block of texts, each ended by a zero byte. */
#pragma once

#include <stdbool.h>

#include "text/chars.h"

struct ah_charsmap {
    uint32_t *unit;
    size_t units;
    char *text;
    size_t bytes;
    bool keeps[128]; /* ASCII characters that no entry begins with */
};

/* Read a table from base64 text. AH_EINVAL: it is damaged. A table that could not be read may be closed. */
int ah_charsmap_read(struct ah_charsmap *map, const char *base64);
void ah_charsmap_close(struct ah_charsmap *map);

/* Rewrite `text` as the tokenizers package: a grapheme of less than 6 bytes that begins with an entry is replaced by
 * that entry's text, else each of its characters. `spare` is workspace. */
int ah_charsmap_apply(const struct ah_charsmap *map, struct ah_chars *text, struct ah_chars *spare);
