/* Texts are scanned eight bytes at a time, and copied only where they have escapes. */
#include "data/json_cursor.h"

#include <string.h>

#include "base/memory/array.h"
#include "base/status/status.h"

int ah_json_wrong(const struct ah_json_cursor *c, const char *at, const char *what)
{
    return ah_fail(AH_EIO, "line %lld, column %lld: %s", (long long)c->line, (long long)(at - c->line_start) + 1,
                   what);
}

int ah_json_short(const struct ah_json_cursor *c, const char *what)
{
    return c->open ? AH_JSON_NEEDS_MORE : ah_json_wrong(c, c->end, what);
}

void ah_json_blanks(struct ah_json_cursor *c)
{
    for (; c->at < c->end; c->at++) {
        if (*c->at == '\n') {
            c->line++;
            c->line_start = c->at + 1;
        } else if (*c->at != ' ' && *c->at != '\t' && *c->at != '\r') {
            return;
        }
    }
}

/* The first byte from `at` on that is no plain ASCII of a text: a quote, a backslash, below a blank, or above 127. */
static const char *plain_end(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    for (; end - at >= 8; at += 8) {
        uint64_t eight;
        memcpy(&eight, at, 8);
        uint64_t quote = eight ^ (ones * '"'), slash = eight ^ (ones * '\\');
        if ((((quote - ones) & ~quote) | ((slash - ones) & ~slash) | (eight - ones * ' ') | eight) & highs)
            break;
    }
    while (at < end && (unsigned char)*at >= ' ' && (unsigned char)*at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* Return the bytes of the character at `at`: 0 for invalid UTF-8, -1 where the bytes end within it. */
static int json_character(const unsigned char *at, size_t left)
{
    int more = *at >= 0xF0 ? 3 : *at >= 0xE0 ? 2 : 1;
    unsigned char low = *at == 0xE0 ? 0xA0 : *at == 0xF0 ? 0x90 : 0x80;
    unsigned char high = *at == 0xED ? 0x9F : *at == 0xF4 ? 0x8F : 0xBF;
    if (*at < 0xC2 || *at > 0xF4)
        return 0;
    for (int i = 1; i <= more; i++) {
        if ((size_t)i >= left)
            return -1;
        if (at[i] < low || at[i] > high)
            return 0;
        low = 0x80;
        high = 0xBF;
    }
    return more + 1;
}

static int json_cursor_hex4(const char *at)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int letter = (c | 32) - 'a';
        int digit = c >= '0' && c <= '9' ? c - '0' : letter >= 0 && letter < 6 ? letter + 10 : -1;
        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

static size_t put_character(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (size_t i = more; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)((more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0) | c);
    return more + 1;
}

/* \uXXXX, or two of them for a character beyond 16 bits: c->at points to the u. */
static int read_unicode(struct ah_json_cursor *c, char *to, size_t *count)
{
    const char *at = c->at;
    if (c->end - at < 5)
        return ah_json_short(c, "a text is not closed");
    int high = json_cursor_hex4(at + 1), low = 0;
    if (high < 0)
        return ah_json_wrong(c, at, "expected four hexadecimal digits after \\u");
    if (high >= 0xD800 && high < 0xDC00) {
        if (c->end - at < 11)
            return ah_json_short(c, "a text is not closed");
        low = at[5] == '\\' && at[6] == 'u' ? json_cursor_hex4(at + 7) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return ah_json_wrong(c, at, "half of a character: \\uD800 to \\uDBFF must be followed by \\uDC00 to "
                                 "\\uDFFF");
    } else if (high >= 0xDC00 && high < 0xE000) {
        return ah_json_wrong(c, at, "half of a character: \\uDC00 to \\uDFFF must follow \\uD800 to \\uDBFF");
    }
    uint32_t character = (uint32_t)high;
    if (low)
        character = 0x10000u + ((character - 0xD800u) << 10) + ((uint32_t)low - 0xDC00u);
    *count += put_character(to + *count, character);
    c->at += low ? 11 : 5;
    return 0;
}

/* Read the escape after a backslash, at c->at. */
static int read_escape(struct ah_json_cursor *c, char *to, size_t *count)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (c->at == c->end)
        return ah_json_short(c, "a text is not closed");
    if (*c->at == 'u')
        return read_unicode(c, to, count);
    const char *found = memchr(letters, *c->at, sizeof letters - 1);
    if (!found)
        return ah_json_wrong(c, c->at, "no such escape");
    to[(*count)++] = values[found - letters];
    c->at++;
    return 0;
}

/* Pass plain characters: to the quote, a backslash or the end. */
static int pass_plain(struct ah_json_cursor *c)
{
    while ((c->at = plain_end(c->at, c->end)) < c->end && *c->at != '"' && *c->at != '\\') {
        if ((unsigned char)*c->at < 0x80)
            return ah_json_wrong(c, c->at, "a control character in a text: it is written with a backslash");
        int taken = json_character((const unsigned char *)c->at, (size_t)(c->end - c->at));
        if (taken < 0)
            return ah_json_short(c, "a text is not closed");
        if (taken == 0)
            return ah_json_wrong(c, c->at, "bytes that are no UTF-8");
        c->at += taken;
    }
    return c->at == c->end ? ah_json_short(c, "a text is not closed") : 0;
}

int ah_json_text(struct ah_json_cursor *c, const char **text, size_t *length)
{
    const char *from = c->at;
    size_t count = 0;
    int status = pass_plain(c);
    if (status)
        return status;
    if (*c->at == '"') {
        *text = from;
        *length = (size_t)(c->at++ - from);
        return 0;
    }
    for (;;) {
        size_t more = (size_t)(c->at - from);
        AH_TRY(ah_grow(c->plain, count + more + 8, c->plain_room, 1));
        memcpy(*c->plain + count, from, more);
        count += more;
        if (*c->at++ == '"')
            break;
        if ((status = read_escape(c, *c->plain, &count)) != 0)
            return status;
        from = c->at;
        if ((status = pass_plain(c)) != 0)
            return status;
    }
    *text = *c->plain;
    *length = count;
    return 0;
}
