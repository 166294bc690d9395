/* Doubling a malloc'ed array. The pointer is read and written by bytes, since its type is the caller's. */
#include "base/memory/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

enum { FIRST_ROOM = 16 };

int ah_grow_more(void *array, size_t needed, size_t *room, size_t item)
{
    size_t wider = *room > SIZE_MAX / 2 ? SIZE_MAX : 2 * *room;
    wider = wider > needed ? wider : needed;
    wider = wider > FIRST_ROOM ? wider : FIRST_ROOM;
    if (wider > PTRDIFF_MAX / item)
        return ah_fail(AH_ENOMEM, "out of memory: %zu items of %zu bytes asked for", wider, item);
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, wider * item);
    if (!grown)
        return ah_fail(AH_ENOMEM, "out of memory: %zu bytes asked for", wider * item);
    memcpy(array, &grown, sizeof grown);
    *room = wider;
    return 0;
}

int ah_text_append(struct ah_text *text, const void *bytes, size_t count)
{
    AH_TRY(ah_grow(&text->at, text->bytes + count + 1, &text->room, 1));
    memcpy(text->at + text->bytes, bytes, count);
    text->bytes += count;
    text->at[text->bytes] = 0;
    return 0;
}
