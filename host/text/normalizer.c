/* Each step writes the new text into the spare one and changes places with it. */
#include "text/normalizer.h"

#include <string.h>

#include "base/status/status.h"
#include "text/places.h"
#include "text/unicode.h"

/* Marks a character of the decomposition of the one before it, while marks are sorted. */
#define INSERTED 0x80000000u

static uint32_t normalizer_bare(uint32_t c)
{
    return c & ~INSERTED;
}

/* Sort the marks [begin, end) by their classes, stable. */
static void sort_marks(struct ah_char *at, size_t begin, size_t end)
{
    for (size_t i = begin + 1; i < end; i++) {
        uint32_t c = at[i].c;
        size_t k = i;
        for (; k > begin && ah_unicode_class(normalizer_bare(at[k - 1].c)) > ah_unicode_class(normalizer_bare(c)); k--)
            at[k].c = at[k - 1].c;
        at[k].c = c;
    }
}

/* Long runs of marks, which no language has, are sorted by counting classes. */
static int sort_many(struct ah_char *at, size_t begin, size_t end)
{
    AH_CLEANUP(ah_chars_close) struct ah_chars sorted = {0};
    size_t start[256] = {0};
    AH_TRY(ah_chars_reserve(&sorted, end - begin));
    for (size_t i = begin; i < end; i++)
        start[ah_unicode_class(normalizer_bare(at[i].c))]++;
    for (size_t mark = 0, sum = 0; mark < 256; mark++) {
        size_t count = start[mark];
        start[mark] = sum;
        sum += count;
    }
    for (size_t i = begin; i < end; i++)
        sorted.at[start[ah_unicode_class(normalizer_bare(at[i].c))]++].c = at[i].c;
    for (size_t i = begin; i < end; i++)
        at[i].c = sorted.at[i - begin].c;
    return 0;
}

static int order_marks(struct ah_chars *text)
{
    for (size_t i = 0; i < text->count; i++) {
        size_t end = i;
        while (end < text->count && ah_unicode_class(normalizer_bare(text->at[end].c)) != 0)
            end++;
        if (end - i > 64)
            AH_TRY(sort_many(text->at, i, end));
        else if (end - i > 1)
            sort_marks(text->at, i, end);
        i = end;
    }
    return 0;
}

/* The first characters that have parts. */
enum { CANONICAL = 0xC0, COMPATIBLE = 0xA0 };

static bool has_no_parts(const struct ah_chars *text, uint32_t first)
{
    for (size_t i = 0; i < text->count; i++) {
        if (text->at[i].c >= first)
            return false;
    }
    return true;
}

/* Decompose characters and sort their marks; `from` is then the number of source characters that each consumes. */
static int take_apart(struct ah_chars *text, struct ah_chars *spare, uint32_t first)
{
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, 4 * text->count));
    for (size_t i = 0; i < text->count; i++) {
        uint32_t own[4];
        const uint32_t *part = own;
        int parts = first == CANONICAL ? ah_unicode_decompose(text->at[i].c, own)
                                       : ah_unicode_decompose_more(text->at[i].c, &part, own);
        AH_TRY(ah_chars_reserve(spare, (size_t)parts));
        for (int k = 0; k < parts; k++)
            ah_chars_push(spare, k ? part[k] | INSERTED : part[k], &text->at[i]);
    }
    AH_TRY(order_marks(spare));
    for (size_t i = 0; i < spare->count; i++) {
        spare->at[i].from = !(spare->at[i].c & INSERTED);
        spare->at[i].c = normalizer_bare(spare->at[i].c);
    }
    ah_chars_swap(text, spare);
    return 0;
}

static int normalizer_decompose(struct ah_chars *text, struct ah_chars *spare, uint32_t first)
{
    if (has_no_parts(text, first))
        return 0;
    AH_TRY(take_apart(text, spare, first));
    ah_places_assign(text, spare);
    return 0;
}

static int normalizer_compose(struct ah_chars *text, struct ah_chars *spare, uint32_t first)
{
    if (has_no_parts(text, first))
        return 0;
    AH_TRY(take_apart(text, spare, first));
    size_t kept = 0, starter = SIZE_MAX;
    int last = -1; /* the class before this character, -1 right behind the starter */
    for (size_t i = 0; i < text->count; i++) {
        struct ah_char at = text->at[i];
        int mark = ah_unicode_class(at.c);
        uint32_t joined = starter != SIZE_MAX && last < mark ? ah_unicode_compose(text->at[starter].c, at.c) : 0;
        if (joined) {
            text->at[starter].c = joined;
            text->at[starter].from += at.from;
            continue;
        }
        if (mark == 0) {
            starter = kept;
            last = -1;
        } else {
            last = mark;
        }
        text->at[kept++] = at;
    }
    text->count = kept;
    ah_places_assign(text, spare);
    return 0;
}

static void normalizer_filter(struct ah_chars *text, int flag)
{
    size_t kept = 0;
    for (size_t i = 0; i < text->count; i++) {
        if (!ah_unicode_is(text->at[i].c, flag))
            text->at[kept++] = text->at[i];
    }
    text->count = kept;
}

static int normalizer_lowercase(struct ah_chars *text, struct ah_chars *spare)
{
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, 2 * text->count));
    for (size_t i = 0; i < text->count; i++) {
        uint32_t small[2];
        int count = ah_unicode_lower_of(text->at[i].c, small);
        for (int k = 0; k < count; k++)
            ah_chars_push(spare, small[k], &text->at[i]);
    }
    ah_chars_swap(text, spare);
    return 0;
}

/* Control characters go, space of any kind becomes a blank, ideographs get blanks around them. */
static int normalizer_clean(const struct ah_normalizer *step, struct ah_chars *text, struct ah_chars *spare)
{
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, 3 * text->count));
    for (size_t i = 0; i < text->count; i++) {
        const struct ah_char *at = &text->at[i];
        uint32_t c = at->c;
        if (step->clean_text && ah_unicode_is(c, AH_UNICODE_CONTROL))
            continue;
        if (step->clean_text && ah_unicode_is(c, AH_UNICODE_SPACE))
            c = ' ';
        bool alone = step->ideographs && ah_unicode_is_ideograph(c);
        if (alone)
            ah_chars_push(spare, ' ', at);
        ah_chars_push(spare, c, at);
        if (alone)
            ah_chars_push(spare, ' ', at);
    }
    ah_chars_swap(text, spare);
    return 0;
}

static int normalizer_bert(const struct ah_normalizer *step, struct ah_chars *text, struct ah_chars *spare)
{
    if (step->clean_text || step->ideographs)
        AH_TRY(normalizer_clean(step, text, spare));
    if (step->strip_accents) {
        AH_TRY(normalizer_decompose(text, spare, CANONICAL));
        normalizer_filter(text, AH_UNICODE_NONSPACING);
    }
    return step->lowercase ? normalizer_lowercase(text, spare) : 0;
}

static void normalizer_trim(const struct ah_normalizer *step, struct ah_chars *text)
{
    size_t begin = 0, end = text->count;
    while (step->left && begin < end && ah_unicode_is(text->at[begin].c, AH_UNICODE_SPACE))
        begin++;
    while (step->right && end > begin && ah_unicode_is(text->at[end - 1].c, AH_UNICODE_SPACE))
        end--;
    if (begin > 0)
        memmove(text->at, text->at + begin, (end - begin) * sizeof *text->at);
    text->count = end - begin;
}

static bool nmt_removes(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}

static bool nmt_blanks(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

static void normalizer_nmt(struct ah_chars *text)
{
    size_t kept = 0;
    for (size_t i = 0; i < text->count; i++) {
        struct ah_char at = text->at[i];
        if (nmt_removes(at.c))
            continue;
        at.c = nmt_blanks(at.c) ? ' ' : at.c;
        text->at[kept++] = at;
    }
    text->count = kept;
}

static int normalizer_prepend(const struct ah_chars *content, struct ah_chars *text, struct ah_chars *spare)
{
    if (text->count == 0)
        return 0;
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, content->count + text->count));
    for (size_t i = 0; i < content->count; i++)
        ah_chars_push(spare, content->at[i].c, &text->at[0]);
    memcpy(spare->at + spare->count, text->at, text->count * sizeof *text->at);
    spare->count += text->count;
    ah_chars_swap(text, spare);
    return 0;
}

/* One character for each of one kind. */
static bool normalizer_replace_char(const struct ah_normalizer *step, struct ah_chars *text)
{
    if (step->pattern.kind != AH_PATTERN_TEXT || step->pattern.text.count != 1 || step->content.count != 1)
        return false;
    uint32_t old = step->pattern.text.at[0].c, new = step->content.at[0].c;
    for (size_t i = 0; i < text->count; i++)
        text->at[i].c = text->at[i].c == old ? new : text->at[i].c;
    return true;
}

/* New characters have the place of the last one that they replace. */
static int normalizer_put(const struct ah_normalizer *step, const struct ah_spans *matches, struct ah_chars *text,
                          struct ah_chars *spare)
{
    size_t taken = 0, count = step->content.count;
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, text->count + matches->count * count));
    for (size_t i = 0; i <= matches->count; i++) {
        size_t begin = i < matches->count ? matches->at[i].begin : text->count;
        memcpy(spare->at + spare->count, text->at + taken, (begin - taken) * sizeof *text->at);
        spare->count += begin - taken;
        if (i == matches->count)
            break;
        taken = matches->at[i].end;
        for (size_t k = 0; k < count; k++)
            ah_chars_push(spare, step->content.at[k].c, &text->at[taken - 1]);
    }
    ah_chars_swap(text, spare);
    return 0;
}

static int normalizer_replace(const struct ah_normalizer *step, struct ah_chars *text, struct ah_chars *spare)
{
    AH_CLEANUP(ah_spans_close) struct ah_spans matches = {0};
    if (normalizer_replace_char(step, text))
        return 0;
    AH_TRY(ah_pattern_matches(&step->pattern, text->at, (struct ah_span){0, text->count}, &matches));
    if (matches.count > 0)
        AH_TRY(normalizer_put(step, &matches, text, spare));
    return 0;
}

static int normalizer_apply(const struct ah_normalizer *step, struct ah_chars *text, struct ah_chars *spare)
{
    switch (step->kind) {
    case AH_NORMALIZE_BERT: return normalizer_bert(step, text, spare);
    case AH_NORMALIZE_LOWERCASE: return normalizer_lowercase(text, spare);
    case AH_NORMALIZE_NFD: return normalizer_decompose(text, spare, CANONICAL);
    case AH_NORMALIZE_NFC: return normalizer_compose(text, spare, CANONICAL);
    case AH_NORMALIZE_NFKD: return normalizer_decompose(text, spare, COMPATIBLE);
    case AH_NORMALIZE_NFKC: return normalizer_compose(text, spare, COMPATIBLE);
    case AH_NORMALIZE_STRIP_ACCENTS: normalizer_filter(text, AH_UNICODE_MARK); return 0;
    case AH_NORMALIZE_STRIP: normalizer_trim(step, text); return 0;
    case AH_NORMALIZE_NMT: normalizer_nmt(text); return 0;
    case AH_NORMALIZE_PREPEND: return normalizer_prepend(&step->content, text, spare);
    case AH_NORMALIZE_REPLACE: return normalizer_replace(step, text, spare);
    case AH_NORMALIZE_CHARSMAP: return ah_charsmap_apply(&step->charsmap, text, spare);
    }
    return 0;
}

int ah_normalize(const struct ah_normalizer *step, int steps, struct ah_chars *text, struct ah_chars *spare)
{
    for (int i = 0; i < steps; i++)
        AH_TRY(normalizer_apply(&step[i], text, spare));
    return 0;
}

void ah_normalizer_close(struct ah_normalizer *step)
{
    ah_pattern_close(&step->pattern);
    ah_chars_close(&step->content);
    ah_charsmap_close(&step->charsmap);
}
