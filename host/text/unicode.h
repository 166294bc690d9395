/* Characters: UTF-8, a character's kind, its lower case, its canonical decomposition.
 *
 * Kinds are those of Hugging Face's tokenizers (scripts/unicode/tables.py), not those of one version of Unicode.
 * ah_unicode_open must be called first; then any thread may call the other functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ah_unicode_flag {
    AH_UNICODE_SPACE = 1,
    AH_UNICODE_CONTROL = 2,     /* BERT leaves it out */
    AH_UNICODE_PUNCTUATION = 4, /* BERT's: of Unicode, and every ASCII mark */
    AH_UNICODE_LETTER = 8,
    AH_UNICODE_NUMBER = 16,
    AH_UNICODE_WORD = 32,       /* \w of a regular expression */
    AH_UNICODE_NONSPACING = 64, /* the accents that BERT strips */
    AH_UNICODE_MARK = 128,      /* the accents that StripAccents strips */
};

#define AH_UNICODE_END 0x110000u
#define AH_UNICODE_REPLACEMENT 0xFFFDu

/* Build the tables, once per process. */
void ah_unicode_open(void);

extern uint8_t ah_unicode_flag_of[AH_UNICODE_END];

static inline bool ah_unicode_is(uint32_t c, int flags)
{
    return (ah_unicode_flag_of[c] & flags) != 0;
}

/* Is the character an ideograph, a separate word for BERT? */
bool ah_unicode_is_ideograph(uint32_t c);

/* ah_unicode_lower_of where c >= 128; out[0] is c. */
int ah_unicode_lower_wide(uint32_t c, uint32_t out[2]);

/* The small letter of `c` into `out`: 1 or 2 characters, the count. */
static inline int ah_unicode_lower_of(uint32_t c, uint32_t out[2])
{
    out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
    return c < 128 ? 1 : ah_unicode_lower_wide(c, out);
}

/* All canonical parts of `c` in order into `out`: 1 to 4 characters, the count. */
int ah_unicode_decompose(uint32_t c, uint32_t out[4]);

/* All compatible parts of `c` (NFKD), the canonical ones where there are no others: *parts are theirs, or those of
 * `own`. At most AH_UNICODE_PARTS, the count. */
#define AH_UNICODE_PARTS 18
int ah_unicode_decompose_more(uint32_t c, const uint32_t **parts, uint32_t own[4]);

/* The character that a and b are joined to, 0 when there is none. */
uint32_t ah_unicode_compose(uint32_t a, uint32_t b);

/* The canonical combining class. */
int ah_unicode_class(uint32_t c);

/* Role of a character in graphemes, without the rules of Hangul, flags and emoji, which make graphemes of 6 bytes and
 * more; controls of 4 bytes count as others for the same reason. */
enum ah_unicode_join { AH_JOIN_NONE, AH_JOIN_EXTEND, AH_JOIN_CONTROL, AH_JOIN_PREPEND };
enum ah_unicode_join ah_unicode_join_of(uint32_t c);

/* ah_utf8_next and ah_utf8_put of characters of several bytes. */
uint32_t ah_utf8_next_wide(const unsigned char *text, size_t count, int *taken);
int ah_utf8_put_wide(uint32_t c, unsigned char out[4]);

/* Decode the character at `text`, of which `count` > 0 bytes are left; `*taken` is its length. Invalid UTF-8 is decoded
 * as U+FFFD for each longest valid prefix of a character, as by Python's errors="replace". */
static inline uint32_t ah_utf8_next(const unsigned char *text, size_t count, int *taken)
{
    *taken = 1;
    return text[0] < 128 ? text[0] : ah_utf8_next_wide(text, count, taken);
}

/* Write `c` as UTF-8, 1 to 4 bytes; the count. */
static inline int ah_utf8_put(uint32_t c, unsigned char out[4])
{
    out[0] = (unsigned char)c;
    return c < 128 ? 1 : ah_utf8_put_wide(c, out);
}
