/* Cutting texts into words. GPT-2's rule is the regular expression
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * written out: every character is in exactly one of the three kinds or is space. */
#include "text/splitter.h"

#include <stdlib.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/unicode.h"

static int splitter_add(struct ah_spans *spans, size_t begin, size_t end)
{
    if (begin == end)
        return 0;
    AH_TRY(ah_grow(&spans->at, spans->count + 1, &spans->room, sizeof *spans->at));
    spans->at[spans->count++] = (struct ah_span){begin, end};
    return 0;
}

/* Kinds of characters whose runs are words; AH_UNICODE_SPACE alone ends a word and is none. */
static int run_kind(uint32_t c, enum ah_splitter_kind kind)
{
    if (ah_unicode_is(c, AH_UNICODE_SPACE))
        return AH_UNICODE_SPACE;
    if (kind == AH_SPLIT_WHITESPACE)
        return ah_unicode_is(c, AH_UNICODE_WORD) ? AH_UNICODE_WORD : 0;
    return kind == AH_SPLIT_BERT && ah_unicode_is(c, AH_UNICODE_PUNCTUATION) ? AH_UNICODE_PUNCTUATION : 0;
}

static int split_runs(enum ah_splitter_kind kind, const struct ah_char *at, struct ah_span span,
                      struct ah_spans *out)
{
    size_t i = span.begin;
    while (i < span.end) {
        size_t begin = i;
        int what = run_kind(at[i++].c, kind);
        if (what == AH_UNICODE_SPACE)
            continue;
        while (what != AH_UNICODE_PUNCTUATION && i < span.end && run_kind(at[i].c, kind) == what)
            i++;
        AH_TRY(splitter_add(out, begin, i));
    }
    return 0;
}

/* Return the number of characters of 's, 't, 'm, 'd, 're, 've or 'll at i, 0 for none. */
static size_t splitter_contraction(const struct ah_char *at, size_t i, size_t end)
{
    if (at[i].c != '\'' || i + 1 >= end)
        return 0;
    uint32_t a = at[i + 1].c, b = i + 2 < end ? at[i + 2].c : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static int gpt_kind(uint32_t c)
{
    return ah_unicode_flag_of[c] & (AH_UNICODE_SPACE | AH_UNICODE_LETTER | AH_UNICODE_NUMBER);
}

static int split_bytes(const struct ah_char *at, struct ah_span span, struct ah_spans *out)
{
    size_t i = span.begin, end = span.end;
    while (i < end) {
        size_t begin = i, short_form = splitter_contraction(at, i, end);
        bool blank = at[i].c == ' ' && i + 1 < end && gpt_kind(at[i + 1].c) != AH_UNICODE_SPACE;
        int kind = gpt_kind(at[i + blank].c);
        if (short_form) {
            i += short_form;
        } else if (kind != AH_UNICODE_SPACE) {
            i += blank;
            while (i < end && gpt_kind(at[i].c) == kind)
                i++;
        } else {
            while (i < end && gpt_kind(at[i].c) == AH_UNICODE_SPACE)
                i++;
            if (i < end && i - begin > 1)
                i--; /* the last one belongs to the next piece */
        }
        AH_TRY(splitter_add(out, begin, i));
    }
    return 0;
}

static int add_prefixes(struct ah_chars *text, struct ah_spans *words, struct ah_chars *spare)
{
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, text->count + words->count));
    for (size_t i = 0; i < words->count; i++) {
        struct ah_span *word = &words->at[i];
        const struct ah_char *first = &text->at[word->begin];
        size_t begin = spare->count;
        if (!ah_unicode_is(first->c, AH_UNICODE_SPACE))
            ah_chars_push(spare, ' ', first);
        for (size_t k = word->begin; k < word->end; k++)
            ah_chars_push(spare, text->at[k].c, &text->at[k]);
        *word = (struct ah_span){begin, spare->count};
    }
    ah_chars_swap(text, spare);
    return 0;
}

int ah_split(const struct ah_splitter *step, int steps, struct ah_chars *text, struct ah_spans *words,
             struct ah_chars *spare, struct ah_spans *spare_words)
{
    words->count = 0;
    AH_TRY(splitter_add(words, 0, text->count));
    for (int i = 0; i < steps; i++) {
        bool bytes = step[i].kind == AH_SPLIT_BYTE_LEVEL;
        if (bytes && step[i].add_prefix_space)
            AH_TRY(add_prefixes(text, words, spare));
        if (bytes && !step[i].use_regex)
            continue;
        spare_words->count = 0;
        for (size_t k = 0; k < words->count; k++)
            AH_TRY(bytes ? split_bytes(text->at, words->at[k], spare_words)
                         : split_runs(step[i].kind, text->at, words->at[k], spare_words));
        struct ah_spans held = *words;
        *words = *spare_words;
        *spare_words = held;
    }
    return 0;
}

void ah_spans_close(struct ah_spans *spans)
{
    free(spans->at);
    *spans = (struct ah_spans){0};
}
