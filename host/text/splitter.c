/* Cutting texts into words. A step that cuts at matches makes a list of parts, which cover the word, each a match or
 * not; the behavior joins some of them, in the order of the tokenizers package. */
#include "text/splitter.h"

#include <stdlib.h>

#include "base/status/status.h"
#include "text/unicode.h"

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
        AH_TRY(ah_spans_add(out, begin, i));
    }
    return 0;
}

/* Cut at each mark, which begins a word. */
static int split_marks(uint32_t mark, const struct ah_char *at, struct ah_span span, struct ah_spans *out)
{
    size_t begin = span.begin;
    for (size_t i = begin + 1; i < span.end; i++) {
        if (at[i].c != mark)
            continue;
        AH_TRY(ah_spans_add(out, begin, i));
        begin = i;
    }
    return ah_spans_add(out, begin, span.end);
}

/* Append the characters with `flag`, each for itself. */
static int match_flag(int flag, const struct ah_char *at, struct ah_span span, struct ah_spans *out)
{
    for (size_t i = span.begin; i < span.end; i++) {
        if (ah_unicode_is(at[i].c, flag))
            AH_TRY(ah_spans_add(out, i, i + 1));
    }
    return 0;
}

/* The parts of a word, while they are joined. */
struct splitter_parts {
    struct ah_spans *out;
    enum ah_split_behavior behavior;
    bool any, was_match;
};

/* Append the next part, or join it to the one before. A match belongs to one neighbour, unless that is a match too. */
static int splitter_part(struct splitter_parts *parts, size_t begin, size_t end, bool is_match)
{
    bool joins = false;
    if (begin == end)
        return 0;
    if (parts->behavior == AH_SPLIT_TO_PREVIOUS)
        joins = is_match && !parts->was_match;
    else if (parts->behavior == AH_SPLIT_CONTIGUOUS)
        joins = is_match == parts->was_match;
    else if (parts->behavior == AH_SPLIT_TO_NEXT)
        joins = !is_match && parts->was_match;
    joins = joins && parts->any;
    parts->any = true;
    parts->was_match = is_match;
    if (joins) {
        parts->out->at[parts->out->count - 1].end = end;
        return 0;
    }
    return parts->behavior == AH_SPLIT_REMOVED && is_match ? 0 : ah_spans_add(parts->out, begin, end);
}

static int split_matches(const struct ah_splitter *step, const struct ah_spans *matches, struct ah_span span,
                         struct ah_spans *out)
{
    struct splitter_parts parts = {.out = out, .behavior = step->behavior};
    size_t taken = span.begin;
    for (size_t i = 0; i < matches->count; i++) {
        struct ah_span match = matches->at[i];
        AH_TRY(splitter_part(&parts, taken, match.begin, step->invert));
        AH_TRY(splitter_part(&parts, match.begin, match.end, !step->invert));
        taken = match.end;
    }
    return splitter_part(&parts, taken, span.end, step->invert);
}

/* Are the words of the step its matches? */
static bool splitter_is_plain(const struct ah_splitter *step)
{
    return step->kind == AH_SPLIT_PATTERN && ah_pattern_is_total(&step->pattern) &&
           step->behavior == (step->invert ? AH_SPLIT_REMOVED : AH_SPLIT_ISOLATED);
}

static int splitter_match(const struct ah_splitter *step, const struct ah_char *at, struct ah_span span,
                          struct ah_spans *out)
{
    if (step->kind == AH_SPLIT_PATTERN)
        return ah_pattern_matches(&step->pattern, at, span, out);
    return match_flag(step->kind == AH_SPLIT_DIGITS ? AH_UNICODE_NUMBER : AH_UNICODE_PUNCTUATION, at, span, out);
}

/* Cut one word. */
static int splitter_cut(const struct ah_splitter *step, const struct ah_char *at, struct ah_span span,
                        struct ah_spans *matches, struct ah_spans *out)
{
    static const struct ah_pattern gpt2 = {.kind = AH_PATTERN_GPT2};
    switch (step->kind) {
    case AH_SPLIT_BERT:
    case AH_SPLIT_WHITESPACE:
    case AH_SPLIT_SPACES: return split_runs(step->kind, at, span, out);
    case AH_SPLIT_BYTE_LEVEL: return ah_pattern_matches(&gpt2, at, span, out);
    case AH_SPLIT_METASPACE: return split_marks(step->mark, at, span, out);
    default: break;
    }
    if (splitter_is_plain(step))
        return splitter_match(step, at, span, out);
    matches->count = 0;
    AH_TRY(splitter_match(step, at, span, matches));
    return split_matches(step, matches, span, out);
}

/* Is the mark, or the blank of the byte level, inserted before a word that begins so? */
static bool splitter_prepends(const struct ah_splitter *step, const struct ah_char *first)
{
    if (step->kind == AH_SPLIT_BYTE_LEVEL)
        return !ah_unicode_is(first->c, AH_UNICODE_SPACE);
    return first->c != step->mark && (step->prepend == AH_PREPEND_ALWAYS ||
                                      (step->prepend == AH_PREPEND_FIRST && first->from == 0));
}

static int add_prefixes(const struct ah_splitter *step, struct ah_chars *text, struct ah_spans *words,
                        struct ah_chars *spare)
{
    uint32_t prefix = step->kind == AH_SPLIT_BYTE_LEVEL ? ' ' : step->mark;
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, text->count + words->count));
    for (size_t i = 0; i < words->count; i++) {
        struct ah_span *word = &words->at[i];
        const struct ah_char *first = &text->at[word->begin];
        size_t begin = spare->count;
        if (splitter_prepends(step, first))
            ah_chars_push(spare, prefix, first);
        for (size_t k = word->begin; k < word->end; k++)
            ah_chars_push(spare, text->at[k].c, &text->at[k]);
        *word = (struct ah_span){begin, spare->count};
    }
    ah_chars_swap(text, spare);
    return 0;
}

static void splitter_mark(uint32_t mark, struct ah_chars *text)
{
    for (size_t i = 0; i < text->count; i++) {
        if (text->at[i].c == ' ')
            text->at[i].c = mark;
    }
}

int ah_split(const struct ah_splitter *step, int steps, struct ah_chars *text, struct ah_spans *words,
             struct ah_split_work *work)
{
    words->count = 0;
    AH_TRY(ah_spans_add(words, 0, text->count));
    for (int i = 0; i < steps; i++) {
        bool bytes = step[i].kind == AH_SPLIT_BYTE_LEVEL, marks = step[i].kind == AH_SPLIT_METASPACE;
        if (marks)
            splitter_mark(step[i].mark, text);
        if (bytes ? step[i].add_prefix_space : marks && step[i].prepend != AH_PREPEND_NEVER)
            AH_TRY(add_prefixes(&step[i], text, words, &work->text));
        if ((bytes && !step[i].use_regex) || (marks && !step[i].split))
            continue;
        work->words.count = 0;
        for (size_t k = 0; k < words->count; k++)
            AH_TRY(splitter_cut(&step[i], text->at, words->at[k], &work->matches, &work->words));
        struct ah_spans held = *words;
        *words = work->words;
        work->words = held;
    }
    return 0;
}

void ah_split_work_close(struct ah_split_work *work)
{
    ah_chars_close(&work->text);
    ah_spans_close(&work->words);
    ah_spans_close(&work->matches);
}

void ah_splitter_close(struct ah_splitter *step)
{
    ah_pattern_close(&step->pattern);
}
