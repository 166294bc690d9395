/* The leftmost, and of those the longest: the list is kept by falling length. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "text/unicode.h"

int ah_added_push(struct ah_added_list *list, struct ah_added added)
{
    int status = added.count ? ah_grow(&list->at, list->count + 1, &list->room, sizeof *list->at) : 0;
    if (status < 0 || added.count == 0) {
        free(added.c);
        return status;
    }
    size_t i = list->count++;
    for (; i > 0 && list->at[i - 1].count < added.count; i--)
        list->at[i] = list->at[i - 1];
    list->at[i] = added;
    list->first[(added.c[0] & 255) / 64] |= UINT64_C(1) << (added.c[0] & 63);
    return 0;
}

static const struct ah_added *match(const struct ah_added_list *list, const struct ah_chars *text, size_t at)
{
    uint32_t c = text->at[at].c;
    if (!(list->first[(c & 255) / 64] >> (c & 63) & 1))
        return NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct ah_added *added = &list->at[i];
        size_t k = 0;
        while (k < added->count && at + k < text->count && text->at[at + k].c == added->c[k])
            k++;
        if (k == added->count)
            return added;
    }
    return NULL;
}

static bool has(const struct ah_chars *text, size_t at, int flag)
{
    return at < text->count && ah_unicode_is(text->at[at].c, flag);
}

const struct ah_added *ah_added_find(const struct ah_added_list *list, const struct ah_chars *text, size_t from,
                                     size_t taken, size_t *begin, size_t *stop, size_t *next)
{
    for (size_t at = from; list->count && at < text->count; at++) {
        const struct ah_added *added = match(list, text, at);
        if (!added)
            continue;
        *begin = at;
        *stop = *next = at + added->count;
        bool inside = (at > 0 && has(text, at - 1, AH_UNICODE_WORD)) || has(text, *stop, AH_UNICODE_WORD);
        if (added->single_word && inside) {
            at = *stop - 1; /* its text is used up all the same */
            continue;
        }
        while (added->lstrip && *begin > taken && has(text, *begin - 1, AH_UNICODE_SPACE))
            --*begin;
        while (added->rstrip && has(text, *stop, AH_UNICODE_SPACE))
            ++*stop;
        return added;
    }
    return NULL;
}

void ah_added_close(struct ah_added_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->at[i].c);
    free(list->at);
    *list = (struct ah_added_list){0};
}
