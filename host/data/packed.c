/* Buffers double as they grow. Short numbers are read here: up to 18 digits fit into an int64, and m * 10^k or m / 10^k
 * is rounded once, so exact to the last bit, where m has up to 15 digits and k is at most 22 (Clinger, How to read
 * floating point numbers accurately, PLDI 1990). All others are read by the C library from a copy that ends, since
 * cells are contiguous without a terminator. */
#include "data/packed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory/array.h"

enum { LONGEST_NUMBER = 400 };

static int packed_grow(void **memory, size_t bytes)
{
    void *larger = realloc(*memory, bytes);
    AH_TRY_MEMORY(larger, "out of memory");
    *memory = larger;
    return 0;
}

int ah_packed_pad(struct ah_packed *packed, int64_t count)
{
    int64_t empty = packed->count - packed->filled;
    if (packed->count >= count)
        return 0;
    /* The column ends with a gap if it has no filled cell behind the last one. */
    const struct ah_packed_gap *last = packed->gaps ? &packed->gap[packed->gaps - 1] : NULL;
    if (!last || last->from + (empty - (packed->gaps > 1 ? last[-1].empty : 0)) < packed->count) {
        AH_TRY(ah_grow(&packed->gap, packed->gaps + 1, &packed->gap_room, sizeof *packed->gap));
        packed->gap[packed->gaps++].from = packed->count;
    }
    packed->gap[packed->gaps - 1].empty = empty + (count - packed->count);
    packed->count = count;
    return 0;
}

int ah_packed_add(struct ah_packed *packed, enum ah_cell kind, const char *text, size_t length)
{
    if (kind == AH_CELL_NONE)
        return ah_packed_pad(packed, packed->count + 1);
    if (packed->room - packed->used < length) {
        size_t room = 2 * packed->room + length + 64;
        AH_TRY(packed_grow((void **)&packed->bytes, room));
        packed->room = room;
    }
    if (packed->filled == packed->space) {
        int64_t space = 2 * packed->space + 64;
        AH_TRY(packed_grow((void **)&packed->end, (size_t)space * sizeof *packed->end));
        AH_TRY(packed_grow((void **)&packed->kind, (size_t)space));
        packed->space = space;
    }
    if (length > 0)
        memcpy(packed->bytes + packed->used, text, length);
    packed->used += length;
    packed->end[packed->filled] = packed->used;
    packed->kind[packed->filled++] = (unsigned char)kind;
    packed->count++;
    return 0;
}

void ah_packed_cut(struct ah_packed *packed, int64_t count)
{
    if (packed->count <= count)
        return;
    while (packed->gaps && packed->gap[packed->gaps - 1].from >= count)
        packed->gaps--;
    int64_t empty = packed->gaps ? packed->gap[packed->gaps - 1].empty : 0;
    if (packed->gaps) {
        struct ah_packed_gap *last = &packed->gap[packed->gaps - 1];
        int64_t before = packed->gaps > 1 ? last[-1].empty : 0;
        if (last->from + (last->empty - before) > count)
            empty = last->empty = before + (count - last->from);
    }
    packed->filled = count - empty;
    packed->used = packed->filled > 0 ? packed->end[packed->filled - 1] : 0;
    packed->count = count;
}

void ah_packed_trim(struct ah_packed *packed)
{
    void *bytes = packed->used ? realloc(packed->bytes, packed->used) : NULL;
    if (bytes) {
        packed->bytes = bytes;
        packed->room = packed->used;
    }
}

void ah_packed_free(struct ah_packed *packed)
{
    free(packed->bytes);
    free(packed->end);
    free(packed->kind);
    free(packed->gap);
    *packed = (struct ah_packed){0};
}

/* In a column with gaps: the place of cell i among the filled ones, -1 if it is empty. */
static int64_t search_gaps(const struct ah_packed *packed, int64_t i)
{
    size_t low = 0, high = packed->gaps;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (packed->gap[middle].from <= i)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return i;
    const struct ah_packed_gap *gap = &packed->gap[low - 1];
    int64_t end = gap->from + gap->empty - (low > 1 ? gap[-1].empty : 0);
    return i < end ? -1 : i - gap->empty;
}

static inline int64_t place_of(const struct ah_packed *packed, int64_t i)
{
    return i >= packed->count ? -1 : packed->gaps ? search_gaps(packed, i) : i;
}

static inline const char *text_at(const struct ah_packed *packed, int64_t place, size_t *length)
{
    size_t from = place > 0 ? packed->end[place - 1] : 0;
    *length = packed->end[place] - from;
    return packed->bytes ? packed->bytes + from : "";
}

enum ah_cell ah_packed_kind(const struct ah_packed *packed, int64_t i)
{
    int64_t place = place_of(packed, i);
    return place < 0 ? AH_CELL_NONE : (enum ah_cell)packed->kind[place];
}

const char *ah_packed_cell(const struct ah_packed *packed, int64_t i, size_t *length)
{
    int64_t place = place_of(packed, i);
    *length = 0;
    return place < 0 ? "" : text_at(packed, place, length);
}

int64_t ah_packed_first(const struct ah_packed *packed)
{
    return packed->gaps && packed->gap[0].from == 0 ? packed->gap[0].empty : 0;
}

size_t ah_packed_bytes(const struct ah_packed *packed)
{
    return packed->room + (size_t)packed->space * (sizeof *packed->end + 1) + packed->gap_room * sizeof *packed->gap;
}

/* The kinds of number that a text may be. */
enum number { NO_NUMBER, WHOLE, REAL };

/* A plain number of few digits, as most are; NO_NUMBER for all others. */
static enum number read_short(const char *text, size_t length, int64_t *whole, double *real)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                   1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
    const char *at = text, *end = text + length;
    bool minus = *at == '-';
    int64_t value = 0;
    at += minus;
    if (end - at > 18 || at == end)
        return NO_NUMBER;
    for (; at < end && (unsigned char)(*at - '0') < 10; at++)
        value = 10 * value + (*at - '0');
    if (at == end) {
        *whole = minus ? -value : value;
        *real = (double)*whole;
        return WHOLE;
    }
    const char *point = at;
    if (*at++ != '.' || end - text > 16)
        return NO_NUMBER;
    for (; at < end && (unsigned char)(*at - '0') < 10; at++)
        value = 10 * value + (*at - '0');
    if (at < end || end - text < 2 + minus)
        return NO_NUMBER;
    *real = (double)value / power[end - point - 1];
    *real = minus ? -*real : *real;
    return REAL;
}

static enum number read_number(const char *text, size_t length, int64_t *whole, double *real)
{
    char copy[LONGEST_NUMBER + 1], *end;
    while (length > 0 && *text == ' ')
        text++, length--;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length == 0 || length > LONGEST_NUMBER)
        return NO_NUMBER;
    enum number number = read_short(text, length, whole, real);
    if (number != NO_NUMBER)
        return number;
    size_t sign = *text == '-' || *text == '+';
    if (length == sign || memchr(text, 'x', length) || memchr(text, 'X', length) || memchr(text, '(', length) ||
        memchr(text, '\0', length))
        return NO_NUMBER;
    if (!strchr(".0123456789", text[sign]) && strncasecmp(text + sign, "nan", length - sign) &&
        strncasecmp(text + sign, "inf", length - sign))
        return NO_NUMBER;
    memcpy(copy, text, length);
    copy[length] = '\0';
    errno = 0;
    *whole = strtoll(copy, &end, 10);
    if (*end == '\0' && errno == 0) {
        *real = (double)*whole;
        return WHOLE;
    }
    *real = strtod(copy, &end);
    return *end == '\0' ? REAL : NO_NUMBER;
}

static bool read_flag(const char *text, size_t length, bool *value)
{
    *value = length == 4 && !strncasecmp(text, "true", 4);
    return *value || (length == 5 && !strncasecmp(text, "false", 5));
}

enum { SEEN_INT = 1, SEEN_FLOAT = 2, SEEN_FLAG = 4, SEEN_EMPTY = 8, SEEN_TEXT = 16, SEEN_OTHER = 32, SEEN_STRING = 64 };

static int packed_seen(const struct ah_packed *packed, int64_t place)
{
    size_t length;
    const char *text = text_at(packed, place, &length);
    int64_t whole;
    double real;
    bool flag;
    switch ((enum ah_cell)packed->kind[place]) {
    case AH_CELL_STRING: return SEEN_STRING;
    case AH_CELL_FLAG: return SEEN_FLAG;
    case AH_CELL_VALUE:
    case AH_CELL_NONE: return SEEN_OTHER;
    default: break;
    }
    if (length == 0)
        return SEEN_EMPTY;
    switch (read_number(text, length, &whole, &real)) {
    case WHOLE: return SEEN_INT;
    case REAL: return SEEN_FLOAT;
    default: return read_flag(text, length, &flag) ? SEEN_FLAG : SEEN_TEXT;
    }
}

enum ah_guess ah_packed_guess(const struct ah_packed *packed)
{
    int all = packed->gaps ? SEEN_OTHER : 0;
    for (int64_t i = 0; i < packed->filled && !(all & (SEEN_TEXT | SEEN_STRING)); i++)
        all |= packed_seen(packed, i);
    if (all & (SEEN_TEXT | SEEN_STRING)) {
        for (int64_t i = 0; i < packed->filled; i++)
            if (packed->kind[i] > AH_CELL_STRING)
                return AH_GUESS_MIXED;
        return packed->gaps ? AH_GUESS_MIXED : AH_GUESS_TEXT;
    }
    if (all == SEEN_INT)
        return AH_GUESS_INT;
    if (all & (SEEN_INT | SEEN_FLOAT) && !(all & (SEEN_FLAG | SEEN_OTHER)))
        return AH_GUESS_FLOAT;
    if (all == SEEN_FLAG)
        return AH_GUESS_BOOL;
    if (all == 0 || all == SEEN_EMPTY)
        return AH_GUESS_TEXT;
    for (int64_t i = 0; i < packed->filled; i++)
        if (packed->kind[i] != AH_CELL_FIELD)
            return AH_GUESS_MIXED;
    return packed->gaps ? AH_GUESS_MIXED : AH_GUESS_TEXT;
}

static int packed_wrong(const char *expected, const char *text, size_t length)
{
    return ah_fail(AH_EINVAL, "expected %s, got '%.*s'", expected, length < 60 ? (int)length : 60, text);
}

static int whole_value(const char *text, size_t length, enum ah_dtype dtype, void *value)
{
    int64_t whole;
    double real;
    enum number number = read_number(text, length, &whole, &real);
    if (dtype == AH_I64) {
        if (number != WHOLE)
            return packed_wrong("a whole number of 64 bits", text, length);
        *(int64_t *)value = whole;
        return 1;
    }
    if (number != WHOLE || whole < INT32_MIN || whole > INT32_MAX)
        return packed_wrong("a whole number of 32 bits", text, length);
    *(int32_t *)value = (int32_t)whole;
    return 1;
}

int ah_packed_value(const struct ah_packed *packed, int64_t i, enum ah_dtype dtype, void *value)
{
    size_t length;
    int64_t whole, place = place_of(packed, i);
    double real = NAN;
    bool flag = false;
    if (place < 0)
        return 0;
    const char *text = text_at(packed, place, &length);
    if (packed->kind[place] == AH_CELL_STRING && length == 0) /* no field, so not nothing */
        return packed_wrong("a value of the column's type", text, length);
    if (dtype == AH_BOOL) {
        if (!read_flag(text, length, &flag) && !(length == 1 && (*text == '0' || *text == '1')))
            return packed_wrong("true, false, 1 or 0", text, length);
        *(bool *)value = flag || *text == '1';
    } else if (dtype == AH_I64 || dtype == AH_I32) {
        return whole_value(text, length, dtype, value);
    } else {
        if (length > 0 && read_number(text, length, &whole, &real) == NO_NUMBER)
            return packed_wrong("a number", text, length);
        if (dtype == AH_F32)
            *(float *)value = (float)real;
        else
            *(double *)value = real;
    }
    return 1;
}

static int packed_fill(char *to, const struct ah_packed *packed, enum ah_dtype dtype, int64_t *at)
{
    size_t size = ah_dtype_size(dtype);
    for (*at = 0; *at < packed->count; ++*at) {
        int there = ah_packed_value(packed, *at, dtype, to + (size_t)*at * size);
        AH_TRY(there);
        if (!there)
            return ah_fail(AH_EINVAL, "expected %s, got nothing", ah_dtype_name(dtype));
    }
    return 0;
}

int ah_packed_tensor(struct ah_tensor **out, const struct ah_packed *packed, enum ah_dtype dtype, int64_t *wrong_at)
{
    int64_t at;
    *out = NULL;
    if (dtype != AH_BOOL && dtype != AH_I64 && dtype != AH_F64 && dtype != AH_I32 && dtype != AH_F32)
        return ah_fail(AH_EINVAL, "expected bool, float32, float64, int32 or int64, got %s", ah_dtype_name(dtype));
    struct ah_tensor *tensor;
    AH_TRY(ah_tensor_empty(&tensor, &packed->count, 1, dtype, &ah_cpu));
    int status = packed_fill(ah_tensor_data(tensor), packed, dtype, &at);
    if (status < 0) {
        if (wrong_at)
            *wrong_at = at;
        ah_tensor_release(tensor);
        return status;
    }
    *out = tensor;
    return 0;
}
