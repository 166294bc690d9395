/* Of tokens that begin at one place the longest counts. The list is sorted by characters, which makes a trie of it: the
 * tokens that begin with the characters read so far are neighbours, and each further character narrows their range. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/unicode.h"

int ah_added_push(struct ah_added_list *list, struct ah_added added)
{
    int status = 0;
    if (added.count > AH_ADDED_MOST)
        status = ah_fail(AH_EINVAL, "added_tokens: token %d has %zu characters, expected at most %d", added.id,
                         added.count, AH_ADDED_MOST);
    else if (added.count)
        status = ah_grow(&list->at, list->count + 1, &list->room, sizeof *list->at);
    if (status < 0 || added.count == 0) {
        free(added.c);
        return status;
    }
    added.order = list->count;
    list->at[list->count++] = added;
    list->first[(added.c[0] & 255) / 64] |= UINT64_C(1) << (added.c[0] & 63);
    return 0;
}

/* By characters, a token before those that it begins; equal ones in the order of ah_added_push. */
static int added_compare(const void *left, const void *right)
{
    const struct ah_added *a = left, *b = right;
    size_t count = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < count; i++)
        if (a->c[i] != b->c[i])
            return a->c[i] < b->c[i] ? -1 : 1;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

void ah_added_sort(struct ah_added_list *list)
{
    if (list->count)
        qsort(list->at, list->count, sizeof *list->at, added_compare);
}

/* The first token in [low, high), equal up to character `k`, whose character k is at least `c`. A token that ends
 * before k has none and is less. */
static size_t added_bound(const struct ah_added_list *list, size_t low, size_t high, size_t k, uint64_t c)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->at[middle].count <= k || list->at[middle].c[k] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct ah_added *added_match(const struct ah_added_list *list, const struct ah_chars *text, size_t at)
{
    const struct ah_added *found = NULL, *tokens = list->at;
    size_t low = 0, high = list->count;
    uint32_t c = text->at[at].c;
    if (!(list->first[(c & 255) / 64] >> (c & 63) & 1))
        return NULL;
    for (size_t k = 0; at + k < text->count && low < high; k++) {
        c = text->at[at + k].c;
        /* Neither range has to be halved where the text leaves the tokens' common beginning. */
        if (tokens[high - 1].count <= k || c > tokens[high - 1].c[k] || (tokens[low].count > k && c < tokens[low].c[k]))
            break;
        if (tokens[low].count <= k || tokens[low].c[k] != c)
            low = added_bound(list, low, high, k, c);
        if (low < high && (tokens[high - 1].count <= k || tokens[high - 1].c[k] != c))
            high = added_bound(list, low, high, k, (uint64_t)c + 1);
        if (low < high && tokens[low].count == k + 1)
            found = &tokens[low];
    }
    return found;
}

static bool added_has(const struct ah_chars *text, size_t at, int flag)
{
    return at < text->count && ah_unicode_is(text->at[at].c, flag);
}

const struct ah_added *ah_added_find(const struct ah_added_list *list, const struct ah_chars *text, size_t from,
                                     size_t taken, size_t *begin, size_t *stop, size_t *next)
{
    for (size_t at = from; list->count && at < text->count; at++) {
        const struct ah_added *added = added_match(list, text, at);
        if (!added)
            continue;
        *begin = at;
        *stop = *next = at + added->count;
        bool inside = (at > 0 && added_has(text, at - 1, AH_UNICODE_WORD)) || added_has(text, *stop, AH_UNICODE_WORD);
        if (added->single_word && inside) {
            at = *stop - 1; /* its text is used up all the same */
            continue;
        }
        while (added->lstrip && *begin > taken && added_has(text, *begin - 1, AH_UNICODE_SPACE))
            --*begin;
        while (added->rstrip && added_has(text, *stop, AH_UNICODE_SPACE))
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
