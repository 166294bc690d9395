/* Rows of tokens. Cutting follows the tokenizers package: for the longest first both texts get half where neither fits
 * in half, the second the odd one, whichever is longer. */
#include "text/encoding.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

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

static void cut(struct ah_encoding *encoding, int64_t most, bool left)
{
    size_t keep = most < 0 ? 0 : (size_t)most;
    if (keep >= encoding->count)
        return;
    if (left)
        memmove(encoding->at, encoding->at + (encoding->count - keep), keep * sizeof *encoding->at);
    encoding->count = keep;
}

static void cut_longest(struct ah_encoding *a, struct ah_encoding *b, int64_t most, bool left)
{
    if (!b) {
        cut(a, most, left);
        return;
    }
    bool swap = a->count > b->count;
    int64_t shorter = (int64_t)(swap ? b->count : a->count), longer = shorter;
    if (shorter <= most && most - shorter > shorter)
        longer = most - shorter;
    if (shorter + longer > most) {
        shorter = most / 2;
        longer = shorter + most % 2;
    }
    cut(a, swap ? longer : shorter, left);
    cut(b, swap ? shorter : longer, left);
}

int ah_encoding_truncate(struct ah_encoding *a, struct ah_encoding *b, enum ah_truncation how, int64_t most,
                         bool left)
{
    int64_t excess = (int64_t)(a->count + (b ? b->count : 0)) - (most > 0 ? most : 0);
    if (how == AH_TRUNCATE_NOT || excess <= 0)
        return 0;
    if (how == AH_TRUNCATE_LONGEST || most <= 0) {
        cut_longest(a, b, most > 0 ? most : 0, left);
        return 0;
    }
    struct ah_encoding *one = how == AH_TRUNCATE_FIRST ? a : b;
    if (!one)
        return ah_fail(AH_EINVAL, "truncation: only_second needs a second text");
    if ((int64_t)one->count <= excess)
        return ah_fail(AH_EINVAL,
                       "truncation: the %s text has %zu tokens, %lld too many for max_length: cut the other one too "
                       "(longest_first)",
                       how == AH_TRUNCATE_FIRST ? "first" : "second", one->count, (long long)excess);
    cut(one, (int64_t)one->count - excess, left);
    return 0;
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
    size_t most = out->count + template->count + a->count + (b ? b->count : 0);
    AH_TRY(ah_grow(&out->at, most, &out->room, sizeof *out->at));
    for (size_t i = 0; i < template->count; i++) {
        const struct ah_template_item *item = &template->item[i];
        const struct ah_encoding *text = item->sequence == 0 ? a : item->sequence == 1 ? b : NULL;
        if (item->sequence < 0 && specials)
            AH_TRY(ah_encoding_push(out, (struct ah_token){.id = item->id, .word = -1, .type = (uint8_t)item->type,
                                                           .sequence = -1, .special = true}));
        for (size_t k = 0; text && k < text->count; k++) {
            struct ah_token token = text->at[k];
            token.type = (uint8_t)item->type;
            token.sequence = (int8_t)item->sequence;
            AH_TRY(ah_encoding_push(out, token));
        }
    }
    return 0;
}
