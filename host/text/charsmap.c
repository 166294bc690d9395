/* A file may hold any table: every place of the trie and of the texts is checked against its size. */
#include "text/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "text/places.h"
#include "text/unicode.h"

/* Graphemes of this many bytes are not looked up as a whole. */
enum { LONG_GRAPHEME = 6 };

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decode base64 into memory from malloc. */
static int charsmap_decode(const char *base64, unsigned char **out, size_t *bytes)
{
    size_t length = strlen(base64), count = 0;
    uint32_t bits = 0;
    int held = 0;
    while (length > 0 && base64[length - 1] == '=')
        length--;
    *out = malloc(length / 4 * 3 + 4);
    AH_TRY_MEMORY(*out, "out of memory");
    for (size_t i = 0; i < length; i++) {
        int digit = base64_digit(base64[i]);
        if (digit < 0) {
            free(*out);
            return ah_fail(AH_EINVAL, "character %zu is not base64", i);
        }
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            (*out)[count++] = (unsigned char)(bits >> held);
        }
    }
    *bytes = count;
    return 0;
}

static uint32_t charsmap_word(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* A unit is a byte in bits 0 to 7 (bit 31: a value), a leaf in bit 8, and the offset of the next units. */
static uint32_t unit_label(uint32_t unit)
{
    return unit & (1u << 31 | 0xFF);
}

static size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* Return the text of the shortest entry that `key` begins with, NULL for none. */
static const char *charsmap_find(const struct ah_charsmap *map, const unsigned char *key, size_t count)
{
    size_t node = map->units ? unit_offset(map->unit[0]) : 0;
    for (size_t i = 0; i < count && key[i]; i++) {
        node ^= key[i];
        if (node >= map->units || unit_label(map->unit[node]) != key[i])
            return NULL;
        uint32_t unit = map->unit[node];
        node ^= unit_offset(unit);
        if (!(unit >> 8 & 1))
            continue;
        uint32_t place = node < map->units ? map->unit[node] & 0x7FFFFFFF : UINT32_MAX;
        return place < map->bytes ? map->text + place : NULL;
    }
    return NULL;
}

static bool charsmap_begins(const struct ah_charsmap *map, unsigned char byte)
{
    size_t node = map->units ? unit_offset(map->unit[0]) ^ byte : SIZE_MAX;
    return byte && node < map->units && unit_label(map->unit[node]) == byte;
}

int ah_charsmap_read(struct ah_charsmap *map, const char *base64)
{
    unsigned char *bytes = NULL;
    size_t count = 0;
    AH_TRY(charsmap_decode(base64, &bytes, &count));
    size_t trie = count >= 4 ? charsmap_word(bytes) : 0;
    if (count < 4 || trie > count - 4 || trie % 4 != 0) {
        free(bytes);
        return ah_fail(AH_EINVAL, "a trie of %zu bytes in %zu bytes", trie, count);
    }
    map->units = trie / 4;
    map->bytes = count - 4 - trie;
    map->unit = malloc(trie + 4);
    map->text = malloc(map->bytes + 1);
    if (map->unit && map->text) {
        for (size_t i = 0; i < map->units; i++)
            map->unit[i] = charsmap_word(bytes + 4 + 4 * i);
        memcpy(map->text, bytes + 4 + trie, map->bytes);
        map->text[map->bytes] = 0;
        for (int c = 0; c < 128; c++)
            map->keeps[c] = !charsmap_begins(map, (unsigned char)c);
    }
    free(bytes);
    return map->unit && map->text ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

void ah_charsmap_close(struct ah_charsmap *map)
{
    free(map->unit);
    free(map->text);
    *map = (struct ah_charsmap){0};
}

/* Replace `count` characters by a text. The places of the new characters are those of the old ones in order; those of
 * removed ones go to the last new one, or to the character before. */
static int charsmap_replace(struct ah_chars *out, size_t count, const char *text)
{
    size_t length = strlen(text), made = 0;
    AH_TRY(ah_chars_reserve(out, length));
    for (size_t i = 0; i < length; made++) {
        int taken;
        uint32_t c = ah_utf8_next((const unsigned char *)text + i, length - i, &taken);
        ah_place_push(out, c, made < count);
        i += (size_t)taken;
    }
    if (made < count && out->count > 0)
        out->at[out->count - 1].from += (int32_t)(count - made);
    return 0;
}

/* Do a and b belong to one grapheme? Exact where it has less than LONG_GRAPHEME bytes. */
static bool charsmap_joined(uint32_t a, uint32_t b)
{
    if (a == '\r' && b == '\n')
        return true;
    if (a < 0x300 && b < 0x300)
        return false;
    enum ah_unicode_join before = ah_unicode_join_of(a), after = ah_unicode_join_of(b);
    if (before == AH_JOIN_CONTROL || after == AH_JOIN_CONTROL)
        return false;
    return after == AH_JOIN_EXTEND || before == AH_JOIN_PREPEND;
}

/* The end of the grapheme that begins at i, and its UTF-8 in `key` if it is shorter than LONG_GRAPHEME. */
static size_t charsmap_grapheme(const struct ah_chars *text, size_t i, unsigned char key[LONG_GRAPHEME + 4],
                                size_t *bytes)
{
    size_t end = i;
    *bytes = 0;
    do {
        if (*bytes < LONG_GRAPHEME)
            *bytes += (size_t)ah_utf8_put(text->at[end].c, key + *bytes);
        end++;
    } while (end < text->count && charsmap_joined(text->at[end - 1].c, text->at[end].c));
    return end;
}

static int charsmap_char(const struct ah_charsmap *map, uint32_t c, struct ah_chars *out)
{
    unsigned char key[4];
    const char *text = charsmap_find(map, key, (size_t)ah_utf8_put(c, key));
    if (text)
        return charsmap_replace(out, 1, text);
    AH_TRY(ah_chars_reserve(out, 1));
    ah_place_push(out, c, 1);
    return 0;
}

/* Is the text ASCII of which no entry begins with a character? */
static bool charsmap_keeps(const struct ah_charsmap *map, const struct ah_chars *text)
{
    for (size_t i = 0; i < text->count; i++) {
        if (text->at[i].c >= 128 || !map->keeps[text->at[i].c])
            return false;
    }
    return true;
}

int ah_charsmap_apply(const struct ah_charsmap *map, struct ah_chars *text, struct ah_chars *spare)
{
    if (charsmap_keeps(map, text))
        return 0;
    spare->count = 0;
    AH_TRY(ah_chars_reserve(spare, text->count));
    for (size_t i = 0, end; i < text->count; i = end) {
        unsigned char key[LONG_GRAPHEME + 4];
        size_t bytes;
        end = charsmap_grapheme(text, i, key, &bytes);
        const char *whole = bytes < LONG_GRAPHEME ? charsmap_find(map, key, bytes) : NULL;
        if (whole) {
            AH_TRY(charsmap_replace(spare, end - i, whole));
            continue;
        }
        for (; i < end; i++)
            AH_TRY(charsmap_char(map, text->at[i].c, spare));
    }
    ah_chars_swap(text, spare);
    ah_places_assign(text, spare);
    return 0;
}
