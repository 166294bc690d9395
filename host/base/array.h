/* Arrays that grow while they are filled: a pointer and the room, both the caller's own. */
#ifndef AH_BASE_ARRAY_H
#define AH_BASE_ARRAY_H

#include <stddef.h>

/* Make room for `needed` elements, at least doubling the room when it grows: `array` is the address of a pointer to
 * elements of `item` bytes (NULL with *room 0 at first; from malloc, freed by the caller). AH_ENOMEM leaves everything
 * as it was. */
int ah_grow(void *array, size_t needed, size_t *room, size_t item);

#endif
