/* Added tokens: texts that are always one token, found before the model processes the text. */
#pragma once

#include <stdbool.h>

#include "text/chars.h"

/* Most characters of an added token: the search has up to that many steps at each place of a text. */
enum { AH_ADDED_MOST = 1024 };

struct ah_added {
    int32_t id;
    uint32_t *c; /* its characters; normalized ones when it is searched for in normalized text */
    size_t count, order;
    bool special, single_word, lstrip, rstrip, normalized;
};

struct ah_added_list {
    struct ah_added *at;
    size_t count, room;
    uint64_t first[4]; /* the low bytes of first characters, for a quick no */
};

/* Append a token to the list, which owns `added.c` from now on, also on failure. An empty one is skipped. AH_EINVAL:
 * more than AH_ADDED_MOST characters. */
int ah_added_push(struct ah_added_list *list, struct ah_added added);

/* Prepare the list for ah_added_find, after the last ah_added_push. */
void ah_added_sort(struct ah_added_list *list);

/* Find the first token in text->at[from, end); earlier ones with their blanks end at `taken`. [*begin, *stop) is its
 * range, with the blanks that it absorbs; the search continues at *next. NULL: none. */
const struct ah_added *ah_added_find(const struct ah_added_list *list, const struct ah_chars *text, size_t from,
                                     size_t taken, size_t *begin, size_t *stop, size_t *next);

void ah_added_close(struct ah_added_list *list);
