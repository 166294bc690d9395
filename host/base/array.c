/* Doubling a malloc'ed array. The pointer is read and written by bytes, since its type is the caller's. */
#include "base/array.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { FIRST_ROOM = 64 };

int ah_grow(void *array, int count, int *room, size_t item)
{
    if (count < *room)
        return 0;
    if (*room > INT_MAX / 2)
        return ah_fail(AH_ENOMEM, "out of memory");
    int wider = *room ? 2 * *room : FIRST_ROOM;
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, (size_t)wider * item);
    if (!grown)
        return ah_fail(AH_ENOMEM, "out of memory");
    memcpy(array, &grown, sizeof grown);
    *room = wider;
    return 0;
}
