/* Added tokens: texts that are one token wherever they stand, found before the model sees the text. */
#ifndef AH_TEXT_ADDED_H
#define AH_TEXT_ADDED_H

#include <stdbool.h>

#include "text/chars.h"

/* Characters of an added token: finding one takes up to so many steps at each place of a text. */
enum { AH_ADDED_MOST = 1024 };

struct ah_added {
    int32_t id;
    uint32_t *c; /* its characters; normalized ones when it is looked for in normalized text */
    size_t count, order;
    bool special, single_word, lstrip, rstrip, normalized;
};

struct ah_added_list {
    struct ah_added *at;
    size_t count, room;
    uint64_t first[4]; /* the low bytes of first characters, for a quick no */
};

/* Append one to the list, which takes over `c` even when it fails. An empty one is left out. AH_EINVAL: more than
 * AH_ADDED_MOST characters. */
int ah_added_push(struct ah_added_list *list, struct ah_added added);

/* Prepare the list for ah_added_find, after the last ah_added_push. */
void ah_added_sort(struct ah_added_list *list);

/* The first token in text->at[from, end), where earlier ones and their blanks reached to `taken`: what it covers in
 * [*begin, *stop), with the blanks that it takes; *next is where to look on. NULL: none. */
const struct ah_added *ah_added_find(const struct ah_added_list *list, const struct ah_chars *text, size_t from,
                                     size_t taken, size_t *begin, size_t *stop, size_t *next);

void ah_added_close(struct ah_added_list *list);

#endif
