/* Matching by hand. GPT-2's expression
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * and that of GPT-4, Llama 3 (digits 3) and Qwen2 (digits 1)
 *
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * need no backtracking: every character is in exactly one of the three kinds letter, number and space, or in none. */
#include "text/pattern.h"

#include <string.h>

#include "base/status/status.h"
#include "text/regex.h"
#include "text/unicode.h"

static const char gpt2_expression[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define GPT4(numbers) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *expression;
    enum ah_pattern_kind kind;
    size_t digits;
} known_patterns[] = {
    {gpt2_expression, AH_PATTERN_GPT2, 0},
    {GPT4("\\p{N}{1,3}"), AH_PATTERN_GPT4, 3},
    {GPT4("\\p{N}"), AH_PATTERN_GPT4, 1},
    {GPT4("\\p{N}+"), AH_PATTERN_GPT4, SIZE_MAX},
};

int ah_pattern_text(struct ah_pattern *pattern, const char *text)
{
    *pattern = (struct ah_pattern){.kind = AH_PATTERN_TEXT};
    return ah_chars_read(&pattern->text, text, strlen(text));
}

/* Set the pattern to runs of blanks, if the expression is " +" or " {2,}". */
static bool pattern_is_run(const char *expression, size_t *least)
{
    *least = strcmp(expression, " +") == 0 ? 1 : strcmp(expression, " {2,}") == 0 ? 2 : 0;
    return *least > 0;
}

int ah_pattern_regex(struct ah_pattern *pattern, const char *expression)
{
    *pattern = (struct ah_pattern){.kind = AH_PATTERN_REGEX};
    for (size_t i = 0; i < sizeof known_patterns / sizeof *known_patterns; i++) {
        if (strcmp(known_patterns[i].expression, expression) == 0) {
            pattern->kind = known_patterns[i].kind;
            pattern->digits = known_patterns[i].digits;
            return 0;
        }
    }
    if (pattern_is_run(expression, &pattern->least)) {
        pattern->kind = AH_PATTERN_RUN;
        return ah_chars_read(&pattern->text, " ", 1);
    }
    return ah_regex_open(&pattern->regex, expression);
}

void ah_pattern_close(struct ah_pattern *pattern)
{
    ah_chars_close(&pattern->text);
    ah_regex_close(pattern->regex);
    pattern->regex = NULL;
}

bool ah_pattern_is_total(const struct ah_pattern *pattern)
{
    return pattern->kind == AH_PATTERN_GPT2 || pattern->kind == AH_PATTERN_GPT4;
}

static int match_text(const struct ah_chars *text, const struct ah_char *at, struct ah_span span, struct ah_spans *out)
{
    for (size_t i = span.begin; text->count && i + text->count <= span.end;) {
        size_t same = 0;
        while (same < text->count && at[i + same].c == text->at[same].c)
            same++;
        if (same == text->count)
            AH_TRY(ah_spans_add(out, i, i + same));
        i += same == text->count ? same : 1;
    }
    return 0;
}

static int match_run(const struct ah_pattern *pattern, const struct ah_char *at, struct ah_span span,
                     struct ah_spans *out)
{
    uint32_t c = pattern->text.at[0].c;
    for (size_t i = span.begin; i < span.end; i++) {
        size_t begin = i;
        while (i < span.end && at[i].c == c)
            i++;
        if (i - begin >= pattern->least)
            AH_TRY(ah_spans_add(out, begin, i));
    }
    return 0;
}

/* The small letter of a letter of the short forms, without regard to case if `folds`; U+017F is an s then. */
static uint32_t short_letter(uint32_t c, bool folds)
{
    return !folds ? c : c == 0x17F ? 's' : c >= 'A' && c <= 'Z' ? c + 32 : c;
}

/* Return the number of characters of 's, 't, 'm, 'd, 're, 've or 'll at i, 0 for none. */
static size_t pattern_contraction(const struct ah_char *at, size_t i, size_t end, bool folds)
{
    if (at[i].c != '\'' || i + 1 >= end)
        return 0;
    uint32_t a = short_letter(at[i + 1].c, folds), b = i + 2 < end ? short_letter(at[i + 2].c, folds) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* AH_UNICODE_SPACE, _LETTER or _NUMBER, 0 for others. */
static int pattern_kind(uint32_t c)
{
    return ah_unicode_flag_of[c] & (AH_UNICODE_SPACE | AH_UNICODE_LETTER | AH_UNICODE_NUMBER);
}

static size_t pattern_run(const struct ah_char *at, size_t i, size_t end, int kind)
{
    while (i < end && pattern_kind(at[i].c) == kind)
        i++;
    return i;
}

/* The end of the space that begins at i: its last character belongs to the next word. */
static size_t pattern_spaces(const struct ah_char *at, size_t i, size_t end)
{
    size_t stop = pattern_run(at, i, end, AH_UNICODE_SPACE);
    return stop < end && stop - i > 1 ? stop - 1 : stop;
}

static int match_gpt2(const struct ah_char *at, struct ah_span span, struct ah_spans *out)
{
    size_t i = span.begin, end = span.end;
    while (i < end) {
        size_t begin = i, short_form = pattern_contraction(at, i, end, false);
        bool blank = at[i].c == ' ' && i + 1 < end && pattern_kind(at[i + 1].c) != AH_UNICODE_SPACE;
        int kind = pattern_kind(at[i + blank].c);
        if (short_form)
            i += short_form;
        else if (kind != AH_UNICODE_SPACE)
            i = pattern_run(at, i + blank, end, kind);
        else
            i = pattern_spaces(at, i, end);
        AH_TRY(ah_spans_add(out, begin, i));
    }
    return 0;
}

static bool is_line_end(uint32_t c)
{
    return c == '\r' || c == '\n';
}

/* The end of the space that begins at i, by the rule of GPT-4: up to the last line end in it, if there is one. */
static size_t pattern_lines(const struct ah_char *at, size_t i, size_t end)
{
    size_t stop = pattern_run(at, i, end, AH_UNICODE_SPACE), line = stop;
    while (line > i && !is_line_end(at[line - 1].c))
        line--;
    if (line > i)
        return line;
    return stop < end && stop - i > 1 ? stop - 1 : stop;
}

static size_t gpt4_end(const struct ah_char *at, size_t i, size_t end, size_t digits)
{
    size_t short_form = pattern_contraction(at, i, end, true);
    int kind = pattern_kind(at[i].c);
    if (short_form)
        return i + short_form;
    if (kind == AH_UNICODE_LETTER)
        return pattern_run(at, i, end, AH_UNICODE_LETTER);
    if (kind == AH_UNICODE_NUMBER) {
        size_t most = end - i > digits ? i + digits : end;
        return pattern_run(at, i, most, AH_UNICODE_NUMBER);
    }
    int next = i + 1 < end ? pattern_kind(at[i + 1].c) : AH_UNICODE_SPACE;
    if (next == AH_UNICODE_LETTER && !is_line_end(at[i].c))
        return pattern_run(at, i + 1, end, AH_UNICODE_LETTER);
    if (kind == AH_UNICODE_SPACE && !(at[i].c == ' ' && next == 0))
        return pattern_lines(at, i, end);
    i = pattern_run(at, i + (kind == AH_UNICODE_SPACE), end, 0);
    while (i < end && is_line_end(at[i].c))
        i++;
    return i;
}

static int match_gpt4(const struct ah_char *at, struct ah_span span, size_t digits, struct ah_spans *out)
{
    for (size_t i = span.begin, stop; i < span.end; i = stop) {
        stop = gpt4_end(at, i, span.end, digits);
        AH_TRY(ah_spans_add(out, i, stop));
    }
    return 0;
}

int ah_pattern_matches(const struct ah_pattern *pattern, const struct ah_char *at, struct ah_span span,
                       struct ah_spans *out)
{
    switch (pattern->kind) {
    case AH_PATTERN_TEXT: return match_text(&pattern->text, at, span, out);
    case AH_PATTERN_RUN: return match_run(pattern, at, span, out);
    case AH_PATTERN_GPT2: return match_gpt2(at, span, out);
    case AH_PATTERN_GPT4: return match_gpt4(at, span, pattern->digits, out);
    default: return ah_regex_matches(pattern->regex, at, span, out);
    }
}
