/* The plugin of regular expressions, by PCRE2 on characters of 32 bits: its exports. Expressions come with tokenizer
 * files, which may be other people's: compiling and matching are bounded, and there are no callouts. */
#define PCRE2_CODE_UNIT_WIDTH 32
#include <pcre2.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "text/regex.h"

enum { LONGEST = 1 << 16, STEPS = 10000000, HEAP_KIB = 1 << 16 };

struct ah_regex {
    pcre2_code *code;
};

static int regex_fail(int error, size_t at)
{
    PCRE2_UCHAR text[128];
    char plain[128];
    int length = pcre2_get_error_message(error, text, sizeof text / sizeof *text);
    for (int i = 0; i < length; i++)
        plain[i] = (char)text[i];
    return ah_fail(AH_EINVAL, "character %zu: %.*s", at, length < 0 ? 0 : length, plain);
}

/* The characters' codes, in memory from malloc. */
static int regex_codes(const struct ah_char *at, size_t count, uint32_t **out)
{
    *out = malloc((count + 1) * sizeof **out);
    AH_TRY_MEMORY(*out, "out of memory");
    for (size_t i = 0; i < count; i++)
        (*out)[i] = at[i].c;
    return 0;
}

static void regex_close(struct ah_regex *regex)
{
    pcre2_code_free(regex->code);
    free(regex);
}

/* Oniguruma's options for Ruby: ^ and $ match at each line. */
static int regex_open(struct ah_regex **out, const struct ah_chars *expression)
{
    int error;
    size_t at;
    uint32_t *codes;
    if (expression->count > LONGEST)
        return ah_fail(AH_EINVAL, "%zu characters, expected at most %d", expression->count, LONGEST);
    struct ah_regex *regex = calloc(1, sizeof *regex);
    AH_TRY_MEMORY(regex, "out of memory");
    int status = regex_codes(expression->at, expression->count, &codes);
    if (status == 0) {
        regex->code = pcre2_compile(codes, expression->count, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                    PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
        free(codes);
        if (!regex->code)
            status = regex_fail(error, at);
    }
    if (status < 0) {
        free(regex);
        return status;
    }
    *out = regex;
    return 0;
}

static int regex_search(const struct ah_regex *regex, const uint32_t *codes, size_t count, size_t first,
                        pcre2_match_data *match, pcre2_match_context *limits, struct ah_spans *out)
{
    for (size_t from = 0; from < count;) {
        /* Codes are characters already, and a search that begins inside of the text sees the characters before it. */
        int found = pcre2_match(regex->code, codes, count, from, PCRE2_NO_UTF_CHECK, match, limits);
        if (found == PCRE2_ERROR_NOMATCH)
            return 0;
        if (found < 0)
            return regex_fail(found, first + from);
        const size_t *place = pcre2_get_ovector_pointer(match);
        if (place[1] <= from && place[1] <= place[0]) { /* an empty match */
            from++;
            continue;
        }
        if (place[1] > place[0])
            AH_TRY(ah_spans_add(out, first + place[0], first + place[1]));
        from = place[1] > place[0] ? place[1] : place[1] + 1;
    }
    return 0;
}

static int regex_matches(const struct ah_regex *regex, const struct ah_char *at, struct ah_span span,
                         struct ah_spans *out)
{
    uint32_t *codes;
    size_t count = span.end - span.begin;
    AH_TRY(regex_codes(at + span.begin, count, &codes));
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    int status = match && limits ? 0 : ah_fail(AH_ENOMEM, "out of memory");
    if (status == 0) {
        pcre2_set_match_limit(limits, STEPS);
        pcre2_set_heap_limit(limits, HEAP_KIB);
        status = regex_search(regex, codes, count, span.begin, match, limits, out);
    }
    pcre2_match_context_free(limits);
    pcre2_match_data_free(match);
    free(codes);
    return status;
}

extern const struct ah_regex_engine ah_regex_plugin;

const struct ah_regex_engine ah_regex_plugin = {AH_REGEX_ABI, regex_open, regex_matches, regex_close};
