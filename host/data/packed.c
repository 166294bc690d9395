/* Buffers double as they grow. Numbers are read by the C library from a copy that ends, since cells stand one behind
 * the other without a mark between them. */
#include "data/packed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LONGEST_NUMBER = 400 };

static int grow(void **memory, size_t bytes)
{
    void *larger = realloc(*memory, bytes);
    if (!larger)
        return ah_fail(AH_ENOMEM, "out of memory");
    *memory = larger;
    return 0;
}

int ah_packed_add(struct ah_packed *packed, enum ah_cell kind, const char *text, size_t length)
{
    if (packed->room - packed->used < length) {
        size_t room = 2 * packed->room + length + 64;
        AH_TRY(grow((void **)&packed->bytes, room));
        packed->room = room;
    }
    if (packed->count == packed->space) {
        int64_t space = 2 * packed->space + 64;
        AH_TRY(grow((void **)&packed->end, (size_t)space * sizeof *packed->end));
        AH_TRY(grow((void **)&packed->kind, (size_t)space));
        packed->space = space;
    }
    if (length > 0)
        memcpy(packed->bytes + packed->used, text, length);
    packed->used += length;
    packed->end[packed->count] = packed->used;
    packed->kind[packed->count++] = (unsigned char)kind;
    return 0;
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
    *packed = (struct ah_packed){0};
}

const char *ah_packed_cell(const struct ah_packed *packed, int64_t i, size_t *length)
{
    size_t from = i > 0 ? packed->end[i - 1] : 0;
    *length = packed->end[i] - from;
    return packed->bytes ? packed->bytes + from : "";
}

/* Which of the kinds of number a text is, and its value. */
enum number { NO_NUMBER, WHOLE, REAL };

static enum number read_number(const char *text, size_t length, int64_t *whole, double *real)
{
    char copy[LONGEST_NUMBER + 1], *end;
    while (length > 0 && *text == ' ')
        text++, length--;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length == 0 || length > LONGEST_NUMBER)
        return NO_NUMBER;
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

static int seen(const struct ah_packed *packed, int64_t i)
{
    size_t length;
    const char *text = ah_packed_cell(packed, i, &length);
    int64_t whole;
    double real;
    bool flag;
    switch ((enum ah_cell)packed->kind[i]) {
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
    int all = 0;
    for (int64_t i = 0; i < packed->count && !(all & (SEEN_TEXT | SEEN_STRING)); i++)
        all |= seen(packed, i);
    if (all & (SEEN_TEXT | SEEN_STRING)) {
        for (int64_t i = 0; i < packed->count; i++)
            if (packed->kind[i] > AH_CELL_STRING)
                return AH_GUESS_MIXED;
        return AH_GUESS_TEXT;
    }
    if (all == SEEN_INT)
        return AH_GUESS_INT;
    if (all & (SEEN_INT | SEEN_FLOAT) && !(all & (SEEN_FLAG | SEEN_OTHER)))
        return AH_GUESS_FLOAT;
    if (all == SEEN_FLAG)
        return AH_GUESS_BOOL;
    if (all == 0 || all == SEEN_EMPTY)
        return AH_GUESS_TEXT;
    for (int64_t i = 0; i < packed->count; i++)
        if (packed->kind[i] != AH_CELL_FIELD)
            return AH_GUESS_MIXED;
    return AH_GUESS_TEXT;
}

static int wrong(int64_t i, const char *expected, const char *text, size_t length)
{
    return ah_fail(AH_EINVAL, "row %lld: expected %s, got '%.*s'", (long long)i + 1, expected,
                   length < 60 ? (int)length : 60, text);
}

static int read_cell(const struct ah_packed *packed, int64_t i, enum ah_dtype dtype, void *data)
{
    size_t length;
    const char *text = ah_packed_cell(packed, i, &length);
    int64_t whole = 0;
    double real = 0;
    bool flag = false;
    enum number number = read_number(text, length, &whole, &real);
    if (dtype == AH_BOOL) {
        if (!read_flag(text, length, &flag) && (number != WHOLE || whole < 0 || whole > 1))
            return wrong(i, "true, false, 1 or 0", text, length);
        ((bool *)data)[i] = flag || whole == 1;
    } else if (dtype == AH_I64) {
        if (number != WHOLE)
            return wrong(i, "a whole number of 64 bits", text, length);
        ((int64_t *)data)[i] = whole;
    } else {
        bool empty = length == 0 && packed->kind[i] == AH_CELL_FIELD;
        if (number == NO_NUMBER && !empty)
            return wrong(i, "a number", text, length);
        ((double *)data)[i] = empty ? NAN : real;
    }
    return 0;
}

int ah_packed_tensor(struct ah_tensor **out, const struct ah_packed *packed, enum ah_dtype dtype)
{
    *out = NULL;
    if (dtype != AH_BOOL && dtype != AH_I64 && dtype != AH_F64)
        return ah_fail(AH_EINVAL, "expected bool, float64 or int64, got %s", ah_dtype_name(dtype));
    struct ah_tensor *tensor;
    AH_TRY(ah_tensor_empty(&tensor, &packed->count, 1, dtype, &ah_cpu));
    int status = 0;
    for (int64_t i = 0; i < packed->count && status == 0; i++)
        status = read_cell(packed, i, dtype, ah_tensor_data(tensor));
    if (status < 0) {
        ah_tensor_release(tensor);
        return status;
    }
    *out = tensor;
    return 0;
}
