/* The tables are decoded when the first tokenizer is made: kinds and classes are laid out flat, a row of the others is
 * found by halving. The order of their rows must stay that of the characters. */
#include "text/unicode.h"

#include <pthread.h>
#include <string.h>

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

static uint32_t slot_of(uint32_t a, uint32_t b)
{
    return (a * 0x9E3779B1u ^ b * 0x85EBCA6Bu) >> 20;
}

/* Decode a table's text to `numbers`; returns the end of the numbers. */
static uint32_t *table_decode(struct ah_unicode_table *table, uint32_t *numbers)
{
    const char *text = table->text;
    uint32_t *at = numbers;
    for (size_t count = 0; *text; at++, count++) {
        uint32_t number = 0;
        for (int shift = 0;; shift += 5) {
            number |= (uint32_t)(*text & 31) << shift;
            if (!(*text++ & 32))
                break;
        }
        *at = (count < table->columns ? 0 : at[-(ptrdiff_t)table->columns]) + (number >> 1 ^ -(number & 1));
    }
    table->numbers = numbers;
    table->rows = (size_t)(at - numbers) / table->columns;
    return at;
}

static void runs_expand(uint8_t *to, const struct ah_unicode_table *runs)
{
    const uint32_t *run = runs->numbers;
    for (size_t i = 0; i < runs->rows; i++, run += 2) {
        if (run[1])
            memset(to, (int)run[1], run[0]);
        to += run[0];
    }
}

static void open_tables(void)
{
    const struct ah_unicode_table *canonical = ah_unicode_tables + AH_TABLE_CANONICAL;
    uint32_t *numbers = ah_unicode_numbers;
    for (int i = 0; i < AH_TABLE_COUNT; i++)
        numbers = table_decode(ah_unicode_tables + i, numbers);
    runs_expand(ah_unicode_flag_of, ah_unicode_tables + AH_TABLE_FLAGS);
    runs_expand(class_of, ah_unicode_tables + AH_TABLE_CLASSES);
    for (size_t row = 0; row < canonical->rows; row++) {
        const uint32_t *parts = canonical->numbers + 3 * row;
        if (!(parts[2] & 1))
            continue;
        uint32_t slot = slot_of(parts[1], parts[2] >> 1);
        while (joined[slot])
            slot = (slot + 1) % JOINED;
        joined[slot] = (uint16_t)(row + 1);
    }
}

/* Return the last row of a table whose first number is not above c; NULL if there is none. */
static const uint32_t *table_row(int which, uint32_t c)
{
    const struct ah_unicode_table *table = ah_unicode_tables + which;
    size_t low = 0, high = table->rows;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table->numbers[table->columns * middle] <= c)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? table->numbers + table->columns * (low - 1) : NULL;
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

int ah_unicode_lower_wide(uint32_t c, uint32_t out[2])
{
    if (c == 0x130) { /* I with a dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    const uint32_t *run = table_row(AH_TABLE_LOWER, c);
    if (run && (c - run[0]) % run[2] == 0 && (c - run[0]) / run[2] < run[1])
        out[0] = c + run[3];
    return 1;
}

static const uint32_t *parts_of(uint32_t c)
{
    const uint32_t *parts = table_row(AH_TABLE_CANONICAL, c);
    return parts && parts[0] == c ? parts : NULL;
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
        if (parts[2] >> 1)
            tail[tails++] = parts[2] >> 1;
    }
    while (tails > 0)
        out[count++] = tail[--tails];
    return count;
}

int ah_unicode_decompose_more(uint32_t c, const uint32_t **parts, uint32_t own[4])
{
    const uint32_t *run = table_row(AH_TABLE_COMPATIBLE, c);
    *parts = own;
    if (!run || c - run[0] >= run[1])
        return ah_unicode_decompose(c, own);
    *parts = ah_unicode_tables[AH_TABLE_PARTS].numbers + run[3] + (c - run[0]) * run[2];
    return (int)run[2];
}

uint32_t ah_unicode_compose(uint32_t a, uint32_t b)
{
    if (a - LEAD < 19 && b - VOWEL < 21)
        return HANGUL + ((a - LEAD) * 21 + (b - VOWEL)) * 28;
    if (a - HANGUL < HANGUL_COUNT && (a - HANGUL) % 28 == 0 && b > TAIL && b - TAIL < 28)
        return a + (b - TAIL);
    for (uint32_t slot = slot_of(a, b); joined[slot]; slot = (slot + 1) % JOINED) {
        const uint32_t *parts = ah_unicode_tables[AH_TABLE_CANONICAL].numbers + 3 * (joined[slot] - 1);
        if (parts[1] == a && parts[2] >> 1 == b)
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
    const uint32_t *range = table_row(AH_TABLE_JOINS, c);
    return range && c <= range[1] ? (enum ah_unicode_join)range[2] : AH_JOIN_NONE;
}

uint32_t ah_utf8_next_wide(const unsigned char *text, size_t count, int *taken)
{
    unsigned char lead = text[0];
    uint32_t c;
    int more;
    unsigned char low = 0x80, high = 0xBF; /* of the second byte */
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

int ah_utf8_put_wide(uint32_t c, unsigned char out[4])
{
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char mark[] = {0, 0xC0, 0xE0, 0xF0};
    for (int i = more; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3F));
    out[0] = (unsigned char)(mark[more] | c);
    return more + 1;
}
