/* Characters of a text: reading and memory. */
#include "text/chars.h"

#include <stdlib.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/unicode.h"

int ah_chars_reserve(struct ah_chars *chars, size_t more)
{
    return ah_grow(&chars->at, chars->count + more, &chars->room, sizeof *chars->at);
}

int ah_chars_read(struct ah_chars *chars, const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    if (bytes > AH_CHARS_MOST)
        return ah_fail(AH_EINVAL, "a text of %zu bytes, expected at most %d", bytes, AH_CHARS_MOST);
    chars->count = 0;
    AH_TRY(ah_chars_reserve(chars, bytes));
    for (size_t i = 0; i < bytes;) {
        int taken;
        int32_t place = (int32_t)chars->count;
        uint32_t c = ah_utf8_next(at + i, bytes - i, &taken);
        chars->at[chars->count++] = (struct ah_char){.c = c, .from = place, .to = place + 1};
        i += (size_t)taken;
    }
    return 0;
}

void ah_chars_close(struct ah_chars *chars)
{
    free(chars->at);
    *chars = (struct ah_chars){0};
}

void ah_spans_close(struct ah_spans *spans)
{
    free(spans->at);
    *spans = (struct ah_spans){0};
}
