/* The tables behind text/unicode.h, which scripts/unicode/tables.py writes; no one else reads them. */
#ifndef AH_TEXT_UNICODE_TABLES_H
#define AH_TEXT_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

/* Length and flags of runs of characters, from 0 on. */
extern const uint32_t ah_unicode_flags[];
extern const size_t ah_unicode_flags_count;

/* First, count, step, difference: letters and their small ones, rising. */
extern const int32_t ah_unicode_lower[];
extern const size_t ah_unicode_lower_count;

/* Character, two parts (the second may be 0), and 1 where the parts are joined again; rising. */
extern const uint32_t ah_unicode_canonical[];
extern const size_t ah_unicode_canonical_count;

/* Length and canonical combining class of runs of characters, from 0 on. */
extern const uint32_t ah_unicode_classes[];
extern const size_t ah_unicode_classes_count;

/* Character, count of its compatible parts, and the parts, all of them: of the characters whose canonical parts are
 * others. Rising. */
extern const uint32_t ah_unicode_compatible[];
extern const size_t ah_unicode_compatible_count;

#endif
