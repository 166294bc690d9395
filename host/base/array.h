/* Arrays that grow while they are filled: a pointer, a count and the room, all the caller's own. */
#ifndef AH_BASE_ARRAY_H
#define AH_BASE_ARRAY_H

#include <stddef.h>

/* Make room for one element after `count`: `array` is the address of a pointer to elements of `item` bytes (NULL with
 * *room 0 at first; from malloc, freed by the caller). AH_ENOMEM leaves everything as it was. */
int ah_grow(void *array, int count, int *room, size_t item);

#endif
