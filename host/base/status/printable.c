/* Names in files, texts of other hosts and script names are parts of messages: their escape sequences would otherwise
 * reach the terminal. */
#include "base/status/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int ah_utf8_length(const void *at, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = at;
    int size = *byte < 0x80 ? 1 : *byte < 0xc0 ? 0 : *byte < 0xe0 ? 2 : *byte < 0xf0 ? 3 : *byte < 0xf8 ? 4 : 0;
    if (!size || (size_t)size > left)
        return 0;
    uint32_t code = size == 1 ? *byte : *byte & (0x7fu >> size);
    for (int i = 1; i < size; i++) {
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (byte[i] & 0x3f);
    }
    return code < least[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : size;
}

void ah_make_printable(char *text)
{
    const char *from = text, *end = text + strlen(text);
    while (from < end) {
        int size = ah_utf8_length(from, (size_t)(end - from));
        unsigned char first = (unsigned char)from[0], second = size > 1 ? (unsigned char)from[1] : 0;
        bool control = (first < ' ' && first != '\n' && first != '\t') || first == 0x7f ||
                       (first == 0xc2 && second < 0xa0);
        if (control || !size) {
            *text++ = '?';
        } else {
            memmove(text, from, (size_t)size);
            text += size;
        }
        from += size ? size : 1;
    }
    *text = '\0';
}
