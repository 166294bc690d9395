/* Rows of tokens. Cutting follows the tokenizers package: for the longest first both texts get half where neither fits
 * in half, the second the odd one, whichever is longer. */
#include "text/encoding.h"

#include <stdlib.h>

#include "base/memory/array.h"
#include "base/status/status.h"

int ah_encoding_push(struct ah_encoding *encoding, struct ah_token token)
{
    AH_TRY(ah_grow(&encoding->at, encoding->count + 1, &encoding->room, sizeof *encoding->at));
    encoding->at[encoding->count++] = token;
    return 0;
}

void ah_encoding_close(struct ah_encoding *encoding)
{
    free(encoding->at);
    *encoding = (struct ah_encoding){0};
}

static int64_t encoding_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void keep_longest(int64_t a, int64_t b, int64_t most, int64_t keep[2])
{
    if (b < 0) {
        keep[0] = encoding_smaller(a, most);
        return;
    }
    bool swap = a > b;
    int64_t shorter = swap ? b : a, longer = shorter;
    if (shorter <= most && most - shorter > shorter)
        longer = most - shorter;
    if (shorter + longer > most) {
        shorter = most / 2;
        longer = shorter + most % 2;
    }
    keep[0] = encoding_smaller(a, swap ? longer : shorter);
    keep[1] = encoding_smaller(b, swap ? shorter : longer);
}

int ah_truncation_keep(int64_t a, int64_t b, enum ah_truncation how, int64_t most, int64_t keep[2])
{
    int64_t excess = a + (b > 0 ? b : 0) - (most > 0 ? most : 0);
    keep[0] = a;
    keep[1] = b;
    if (how == AH_TRUNCATE_NOT || excess <= 0)
        return 0;
    if (how == AH_TRUNCATE_LONGEST || most <= 0) {
        keep_longest(a, b, most > 0 ? most : 0, keep);
        return 0;
    }
    int64_t *one = how == AH_TRUNCATE_FIRST ? &keep[0] : &keep[1];
    if (*one < 0)
        return ah_fail(AH_EINVAL, "truncation: only_second needs a second text");
    if (*one <= excess)
        return ah_fail(AH_EINVAL,
                       "truncation: the %s text has %lld tokens, %lld too many for max_length: cut the other one too "
                       "(longest_first)",
                       how == AH_TRUNCATE_FIRST ? "first" : "second", (long long)*one, (long long)excess);
    *one -= excess;
    return 0;
}

int64_t ah_pieces_count(int64_t count, int64_t keep, int64_t stride)
{
    if (keep >= count)
        return 1;
    return keep == 0 ? 2 : 1 + (count - keep + keep - stride - 1) / (keep - stride);
}

void ah_pieces_place(int64_t count, int64_t keep, int64_t stride, bool left, int64_t i, int64_t *begin, int64_t *end)
{
    if (keep == 0) {
        *begin = 0;
        *end = i ? count : 0;
        return;
    }
    int64_t from = i * (keep - stride), to = encoding_smaller(from + keep, count);
    *begin = left ? count - to : from;
    *end = left ? count - from : to;
}

int64_t ah_template_specials(const struct ah_template *template)
{
    int64_t count = 0;
    for (size_t i = 0; i < template->count; i++)
        count += template->item[i].sequence < 0;
    return count;
}

int ah_template_apply(const struct ah_template *template, const struct ah_encoding *a, const struct ah_encoding *b,
                      bool specials, struct ah_encoding *out)
{
    size_t most = out->count + template->count;
    for (size_t i = 0; i < template->count; i++)
        most += template->item[i].sequence == 0 ? a->count : template->item[i].sequence == 1 && b ? b->count : 0;
    AH_TRY(ah_grow(&out->at, most, &out->room, sizeof *out->at));
    for (size_t i = 0; i < template->count; i++) {
        const struct ah_template_item *item = &template->item[i];
        const struct ah_encoding *text = item->sequence == 0 ? a : item->sequence == 1 ? b : NULL;
        struct ah_token *to = out->at + out->count;
        if (item->sequence < 0 && specials) {
            *to = (struct ah_token){.id = item->id, .word = -1, .type = (uint8_t)item->type, .sequence = -1,
                                    .special = true};
            out->count++;
        }
        for (size_t k = 0; text && k < text->count; k++) {
            to[k] = text->at[k];
            to[k].type = (uint8_t)item->type;
            to[k].sequence = (int8_t)item->sequence;
        }
        out->count += text ? text->count : 0;
    }
    return 0;
}
