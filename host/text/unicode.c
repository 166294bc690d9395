/* The tables hold runs and sorted rows; kinds and classes are laid out flat when the first tokenizer is made, the
 * rest is found by halving. The order of their rows must stay that of the characters. */
#include "text/unicode.h"

#include <pthread.h>

#include "text/unicode_tables.h"

#define HANGUL 0xAC00u
#define HANGUL_COUNT 11172u
#define LEAD 0x1100u
#define VOWEL 0x1161u
#define TAIL 0x11A7u

uint8_t ah_unicode_flag_of[AH_UNICODE_END];
static uint8_t class_of[AH_UNICODE_END];

/* Rows of the canonical table whose parts are joined again, by hash of the parts: row + 1. */
#define JOINED 4096u
static uint16_t joined[JOINED];

/* Index into the compatible table by character. */
#define COMPATIBLE 4096
static struct {
    uint32_t c, at;
} compatible[COMPATIBLE];
static size_t compatibles;

static uint32_t slot_of(uint32_t a, uint32_t b)
{
    return (a * 0x9E3779B1u ^ b * 0x85EBCA6Bu) >> 20;
}

static void lay_out(uint8_t *to, const uint32_t *run, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i + 1 < count; i += 2) {
        for (size_t k = 0; run[i + 1] && k < run[i]; k++)
            to[at + k] = (uint8_t)run[i + 1];
        at += run[i];
    }
}

static void open_tables(void)
{
    lay_out(ah_unicode_flag_of, ah_unicode_flags, ah_unicode_flags_count);
    lay_out(class_of, ah_unicode_classes, ah_unicode_classes_count);
    for (size_t at = 0; at < ah_unicode_compatible_count; at += 2 + ah_unicode_compatible[at + 1]) {
        compatible[compatibles].c = ah_unicode_compatible[at];
        compatible[compatibles++].at = (uint32_t)at + 1;
    }
    for (size_t row = 0; row < ah_unicode_canonical_count / 4; row++) {
        const uint32_t *parts = ah_unicode_canonical + 4 * row;
        if (!parts[3])
            continue;
        uint32_t slot = slot_of(parts[1], parts[2]);
        while (joined[slot])
            slot = (slot + 1) % JOINED;
        joined[slot] = (uint16_t)(row + 1);
    }
}

void ah_unicode_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_tables);
}

bool ah_unicode_is_ideograph(uint32_t c)
{
    static const uint32_t range[][2] = {
        {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x2A6DF},
        {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
    };
    if (c < range[0][0])
        return false;
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return true;
    return false;
}

int ah_unicode_lower_of(uint32_t c, uint32_t out[2])
{
    out[0] = c;
    if (c < 128) {
        out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
        return 1;
    }
    if (c == 0x130) { /* I with a dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    size_t low = 0, high = ah_unicode_lower_count / 4;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uint32_t)ah_unicode_lower[4 * middle] <= c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 1;
    const int32_t *run = ah_unicode_lower + 4 * (low - 1);
    uint32_t past = c - (uint32_t)run[0];
    if (past % (uint32_t)run[2] == 0 && past / (uint32_t)run[2] < (uint32_t)run[1])
        out[0] = (uint32_t)((int32_t)c + run[3]);
    return 1;
}

static const uint32_t *parts_of(uint32_t c)
{
    size_t low = 0, high = ah_unicode_canonical_count / 4;
    while (low < high) {
        size_t middle = (low + high) / 2;
        uint32_t row = ah_unicode_canonical[4 * middle];
        if (row == c)
            return ah_unicode_canonical + 4 * middle;
        if (row < c)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int ah_unicode_decompose(uint32_t c, uint32_t out[4])
{
    uint32_t hangul = c - HANGUL, tail[4];
    int tails = 0, count = 1;
    out[0] = c;
    if (c < 0xC0)
        return 1;
    if (hangul < HANGUL_COUNT) {
        out[0] = LEAD + hangul / 588;
        out[1] = VOWEL + hangul % 588 / 28;
        out[2] = TAIL + hangul % 28;
        return hangul % 28 ? 3 : 2;
    }
    /* Only a first part can be decomposed again. */
    for (const uint32_t *parts = parts_of(c); parts && tails < 3; parts = parts_of(out[0])) {
        out[0] = parts[1];
        if (parts[2])
            tail[tails++] = parts[2];
    }
    while (tails > 0)
        out[count++] = tail[--tails];
    return count;
}

int ah_unicode_decompose_more(uint32_t c, const uint32_t **parts, uint32_t own[4])
{
    size_t low = 0, high = compatibles;
    *parts = own;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compatible[middle].c == c) {
            *parts = ah_unicode_compatible + compatible[middle].at + 1;
            return (int)ah_unicode_compatible[compatible[middle].at];
        }
        if (compatible[middle].c < c)
            low = middle + 1;
        else
            high = middle;
    }
    return ah_unicode_decompose(c, own);
}

uint32_t ah_unicode_compose(uint32_t a, uint32_t b)
{
    if (a - LEAD < 19 && b - VOWEL < 21)
        return HANGUL + ((a - LEAD) * 21 + (b - VOWEL)) * 28;
    if (a - HANGUL < HANGUL_COUNT && (a - HANGUL) % 28 == 0 && b > TAIL && b - TAIL < 28)
        return a + (b - TAIL);
    for (uint32_t slot = slot_of(a, b); joined[slot]; slot = (slot + 1) % JOINED) {
        const uint32_t *parts = ah_unicode_canonical + 4 * (joined[slot] - 1);
        if (parts[1] == a && parts[2] == b)
            return parts[0];
    }
    return 0;
}

int ah_unicode_class(uint32_t c)
{
    return class_of[c];
}

enum ah_unicode_join ah_unicode_join_of(uint32_t c)
{
    size_t low = 0, high = ah_unicode_joins_count / 2;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ah_unicode_joins[2 * middle] <= c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || c > (ah_unicode_joins[2 * low - 1] & 0xFFFFFF))
        return AH_JOIN_NONE;
    return (enum ah_unicode_join)(ah_unicode_joins[2 * low - 1] >> 24);
}

uint32_t ah_utf8_next(const unsigned char *text, size_t count, int *taken)
{
    unsigned char lead = text[0];
    uint32_t c;
    int more;
    unsigned char low = 0x80, high = 0xBF; /* of the second byte */
    *taken = 1;
    if (lead < 0x80)
        return lead;
    if (lead >= 0xC2 && lead <= 0xDF) {
        more = 1;
        c = lead & 0x1F;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        more = 2;
        c = lead & 0x0F;
        low = lead == 0xE0 ? 0xA0 : 0x80;
        high = lead == 0xED ? 0x9F : 0xBF;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        more = 3;
        c = lead & 0x07;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF;
    } else {
        return AH_UNICODE_REPLACEMENT;
    }
    for (int i = 1; i <= more; i++) {
        if ((size_t)i >= count || text[i] < low || text[i] > high)
            return AH_UNICODE_REPLACEMENT;
        c = c << 6 | (text[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
        *taken = i + 1;
    }
    return c;
}

int ah_utf8_put(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char mark[] = {0, 0xC0, 0xE0, 0xF0};
    for (int i = more; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3F));
    out[0] = (unsigned char)(mark[more] | c);
    return more + 1;
}
