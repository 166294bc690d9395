/* Patterns of normalizers, splitters and decoders: a text, or a regular expression. The expressions of the published
 * byte-level tokenizers are written out in C; all others are matched by PCRE2, in a plugin (text/regex.h). */
#pragma once

#include <stdbool.h>

#include "text/chars.h"

enum ah_pattern_kind {
    AH_PATTERN_TEXT,  /* the characters of `text` */
    AH_PATTERN_RUN,   /* `least` or more of the one character of `text` */
    AH_PATTERN_GPT2,  /* a blank belongs to the next word, "'s" is a word */
    AH_PATTERN_GPT4,  /* any character but letters, numbers and line ends belongs to the letters after it */
    AH_PATTERN_REGEX,
};

struct ah_regex;

struct ah_pattern {
    enum ah_pattern_kind kind;
    struct ah_chars text; /* of TEXT and RUN; empty: no match */
    size_t least;         /* of RUN */
    size_t digits;        /* of GPT4: most numbers in a row that are one word */
    struct ah_regex *regex;
};

/* Make the pattern of a text, or of a regular expression in Oniguruma's syntax, both UTF-8. AH_EINVAL: not a valid
 * expression; AH_ENOTIMPL: one of another meaning in PCRE2. A failed pattern may be closed. */
int ah_pattern_text(struct ah_pattern *pattern, const char *text);
int ah_pattern_regex(struct ah_pattern *pattern, const char *expression);
void ah_pattern_close(struct ah_pattern *pattern);

/* Append the matches in `span`, from left to right, without empty ones. AH_EINVAL: a match exceeds PCRE2's limits. */
int ah_pattern_matches(const struct ah_pattern *pattern, const struct ah_char *at, struct ah_span span,
                       struct ah_spans *out);

/* Is every character in a match, whatever the text? */
bool ah_pattern_is_total(const struct ah_pattern *pattern);
