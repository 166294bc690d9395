/* Arrays that grow while they are filled: a pointer and the room, both the caller's own; and texts. */
#pragma once

#include <stddef.h>

#include "base/status/status.h"

/* ah_grow beyond the room. */
int ah_grow_more(void *array, size_t needed, size_t *room, size_t item);

/* Make room for `needed` elements, at least doubling the room when it grows: `array` is the address of a pointer to
 * elements of `item` bytes (NULL with *room 0 at first; from malloc, freed by the caller). AH_ENOMEM leaves everything
 * as it was. */
static inline int ah_grow(void *array, size_t needed, size_t *room, size_t item)
{
    return needed <= *room ? 0 : ah_grow_more(array, needed, room, item);
}

/* A text that grows; all zero is the empty one. `at` is from malloc and has a 0 after its `bytes`; NULL before the
 * first append. */
struct ah_text {
    char *at;
    size_t bytes, room;
};

/* AH_ENOMEM leaves the text as it was. */
int ah_text_append(struct ah_text *text, const void *bytes, size_t count);
