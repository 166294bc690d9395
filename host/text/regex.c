/* Opens the plugin of regular expressions, once, and refuses syntax that Oniguruma reads otherwise. */
#include "text/regex.h"

#include <string.h>

#include "base/process/plugin.h"
#include "base/status/status.h"

static const struct ah_regex_engine *regex_engine;

static int regex_find_engine(void)
{
    const void *found = regex_engine;
    AH_TRY(ah_plugin_open("regex", "ah_regex_plugin", AH_REGEX_ABI,
                          "patterns are matched by PCRE2 (Debian: libpcre2-32-0; to build: libpcre2-dev)", &found));
    regex_engine = found;
    return 0;
}

/* Parts of Oniguruma's syntax that PCRE2 reads otherwise: hexadecimal digits, sets in sets, and {n,m}+, which repeats
 * the repetition. */
static int regex_check(const char *expression)
{
    static const char *const others[] = {"\\h", "\\H", "&&", "[[", "}+", "(?m"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(expression, others[i]))
            return ah_fail(AH_ENOTIMPL, "pattern '%.60s': '%s' is not supported", expression, others[i]);
    return 0;
}

int ah_regex_open(struct ah_regex **out, const char *expression)
{
    AH_CLEANUP(ah_chars_close) struct ah_chars chars = {0};
    AH_TRY(regex_check(expression));
    AH_TRY(regex_find_engine());
    AH_TRY(ah_chars_read(&chars, expression, strlen(expression)));
    int status = regex_engine->open(out, &chars);
    return status < 0 ? ah_fail_prefix(status, "pattern '%.60s'", expression) : 0;
}

void ah_regex_close(struct ah_regex *regex)
{
    if (regex)
        regex_engine->close(regex);
}

int ah_regex_matches(const struct ah_regex *regex, const struct ah_char *at, struct ah_span span,
                     struct ah_spans *out)
{
    return regex_engine->matches(regex, at, span, out);
}
