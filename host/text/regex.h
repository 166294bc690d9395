/* Regular expressions of tokenizers, matched by PCRE2, which is in the plugin accelhost-regex.so: it exports its
 * `struct ah_regex_engine` as `ah_regex_plugin` and is opened by the first expression. */
#pragma once

#include "text/chars.h"

enum { AH_REGEX_ABI = 1 };

struct ah_regex;

struct ah_regex_engine {
    unsigned abi; /* AH_REGEX_ABI of the headers that the plugin was built with */
    int (*open)(struct ah_regex **out, const struct ah_chars *expression);
    int (*matches)(const struct ah_regex *regex, const struct ah_char *at, struct ah_span span, struct ah_spans *out);
    void (*close)(struct ah_regex *regex);
};

/* Compile an expression in Oniguruma's syntax (UTF-8). AH_EINVAL: it is invalid, or the plugin is not installed;
 * AH_ENOTIMPL: part of it has another meaning in PCRE2. Any thread may match with it. */
int ah_regex_open(struct ah_regex **out, const char *expression);
void ah_regex_close(struct ah_regex *regex);

/* Append the matches in `span` that are not empty. AH_EINVAL: a match exceeds PCRE2's limits. */
int ah_regex_matches(const struct ah_regex *regex, const struct ah_char *at, struct ah_span span,
                     struct ah_spans *out);
