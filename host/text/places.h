/* Source places of characters while a normalizer rewrites a text, by the rules of the tokenizers package: each new
 * character consumes a number of old ones, of which the first is its place; one that consumes none has the place of the
 * last one consumed. Until ah_places_assign `from` is that number. */
#pragma once

#include "text/chars.h"

/* Append `c`, which consumes `takes` characters. There must be room. */
static inline void ah_place_push(struct ah_chars *chars, uint32_t c, int32_t takes)
{
    chars->at[chars->count++] = (struct ah_char){.c = c, .from = takes};
}

/* Replace the numbers by the places of the characters of `source`. */
void ah_places_assign(struct ah_chars *text, const struct ah_chars *source);
