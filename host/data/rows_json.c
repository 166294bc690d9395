/* Rows of JSON: members go to their columns as they are read, without a tree. Numbers stay texts; arrays and objects as
 * values are read by jansson, and kept as it writes them. States: a file of lines, or an array before its first row,
 * before another one, and behind its end. If bytes end within a row of an array, the row is dropped, to be read
 * again. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "data/json_cursor.h"
#include "data/rows.h"

enum { AT_BEGIN, IN_LINES, BEFORE_FIRST, BEFORE_ROW, BEHIND };

enum { SHORT_NUMBER = 64 };

static const char *rows_json_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* The end of the number at `at`, NULL where there is none. */
static const char *number_end(const char *at, const char *end)
{
    at += *at == '-';
    const char *whole = at;
    at = rows_json_digits(at, end);
    if (at == whole || (*whole == '0' && at > whole + 1))
        return NULL;
    if (at < end && *at == '.') {
        const char *part = at + 1;
        if ((at = rows_json_digits(part, end)) == part)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        const char *part = at + 1;
        part += part < end && (*part == '+' || *part == '-');
        if ((at = rows_json_digits(part, end)) == part)
            return NULL;
    }
    return at;
}

static bool all_of_a_number(const char *at, const char *end)
{
    while (at < end && *at && strchr("+-.eE0123456789", *at))
        at++;
    return at == end;
}

static int read_number(struct ah_json_cursor *c, struct ah_packed *column)
{
    char copy[400], *behind;
    const char *from = c->at, *to = number_end(from, c->end);
    if (c->open && c->end - from < (int)sizeof copy && all_of_a_number(from, c->end))
        return AH_JSON_NEEDS_MORE;
    if (!to)
        return ah_json_wrong(c, from, "no number of JSON");
    size_t length = (size_t)(to - from);
    c->at = to;
    if (length <= SHORT_NUMBER && !memchr(from, 'e', length) && !memchr(from, 'E', length))
        return ah_packed_add(column, AH_CELL_NUMBER, from, length);
    if (length >= sizeof copy)
        return ah_json_wrong(c, from, "a number of more than 400 characters");
    memcpy(copy, from, length);
    copy[length] = '\0';
    double value = strtod(copy, &behind);
    if (isinf(value))
        return ah_json_wrong(c, from, "a number beyond float64");
    if (length > SHORT_NUMBER) {
        length = (size_t)snprintf(copy, sizeof copy, "%.17g", value);
        if (!strpbrk(copy, ".e")) /* 2.000 is no whole number */
            length += (size_t)snprintf(copy + length, sizeof copy - length, ".0");
    }
    return ah_packed_add(column, AH_CELL_NUMBER, copy, length);
}

/* The end of the array or object at `at`: where as many brackets were closed as opened; NULL where the bytes end. */
static const char *nested_end(const char *at, const char *end)
{
    int64_t depth = 0;
    for (bool inside = false; at < end; at++) {
        if (inside) {
            inside = *at != '"';
            at += *at == '\\' && end - at > 1;
        } else if (*at == '"') {
            inside = true;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if ((*at == '}' || *at == ']') && --depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

static int read_nested(struct ah_json_cursor *c, struct ah_packed *column)
{
    json_error_t error;
    const char *to = nested_end(c->at, c->end);
    if (!to)
        return ah_json_short(c, "an array or object is not closed");
    json_t *value = json_loadb(c->at, (size_t)(to - c->at), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!value)
        return ah_json_wrong(c, c->at, error.text);
    for (; c->at < to; c->at++) {
        if (*c->at == '\n') {
            c->line++;
            c->line_start = c->at + 1;
        }
    }
    AH_FREED char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(value);
    AH_TRY_MEMORY(text, "out of memory");
    return ah_packed_add(column, AH_CELL_VALUE, text, strlen(text));
}

static int read_word(struct ah_json_cursor *c, struct ah_packed *column)
{
    static const struct { const char *text; size_t length; enum ah_cell kind; } words[] = {
        {"true", 4, AH_CELL_FLAG}, {"false", 5, AH_CELL_FLAG}, {"null", 4, AH_CELL_NONE}};
    size_t left = (size_t)(c->end - c->at);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = words[i].length < left ? words[i].length : left;
        if (memcmp(c->at, words[i].text, length))
            continue;
        if (length < words[i].length)
            return ah_json_short(c, "expected a value");
        c->at += length;
        bool flag = words[i].kind == AH_CELL_FLAG;
        return ah_packed_add(column, words[i].kind, words[i].text, flag ? length : 0);
    }
    return ah_json_wrong(c, c->at, "expected a value");
}

static int read_value(struct ah_json_cursor *c, struct ah_packed *column)
{
    const char *text;
    size_t length;
    if (c->at == c->end)
        return ah_json_short(c, "expected a value");
    if (*c->at == '"') {
        c->at++;
        int status = ah_json_text(c, &text, &length);
        return status ? status : ah_packed_add(column, AH_CELL_STRING, text, length);
    }
    if (*c->at == '{' || *c->at == '[')
        return read_nested(c, column);
    return *c->at == '-' || (*c->at >= '0' && *c->at <= '9') ? read_number(c, column) : read_word(c, column);
}

/* Members are mostly in the order of the row before. */
static int column_of(struct ah_table *table, const char *name, size_t length, int expected)
{
    if (expected < table->columns && !strncmp(table->name[expected], name, length) &&
        table->name[expected][length] == '\0')
        return expected;
    int at = ah_table_find(table, name, length);
    if (at >= 0)
        return at;
    AH_TRY(ah_table_add_column(table, name, length));
    return table->columns - 1;
}

/* A name, its colon and its value, with the blanks between them. */
static int read_member(struct ah_json_cursor *c, struct ah_table *table, int *next)
{
    const char *name, *from = c->at;
    size_t length;
    if (*c->at != '"')
        return ah_json_wrong(c, c->at, "expected a name in quotes");
    c->at++;
    int status = ah_json_text(c, &name, &length);
    if (status)
        return status;
    if (length > 0 && memchr(name, 0, length))
        return ah_json_wrong(c, from, "a name with a character 0");
    int at = column_of(table, name, length, *next);
    if (at < 0)
        return ah_fail_prefix(at, "line %lld", (long long)c->line);
    struct ah_packed *column = &table->column[at];
    if (column->count > table->rows)
        return ah_json_wrong(c, from, "a name that the object has already");
    AH_TRY(ah_packed_pad(column, table->rows));
    ah_json_blanks(c);
    if (c->at == c->end)
        return ah_json_short(c, "expected ':'");
    if (*c->at != ':')
        return ah_json_wrong(c, c->at, "expected ':'");
    c->at++;
    ah_json_blanks(c);
    *next = at + 1;
    return read_value(c, column);
}

static int read_object(struct ah_json_cursor *c, struct ah_table *table)
{
    int64_t line = c->line;
    int next = 0, status;
    if (*c->at != '{')
        return ah_fail(AH_EIO, "line %lld: expected an object with the row's columns by name", (long long)c->line);
    c->at++;
    ah_json_blanks(c);
    bool empty = c->at < c->end && *c->at == '}';
    c->at += empty;
    while (!empty) {
        ah_json_blanks(c);
        if (c->at == c->end)
            return ah_json_short(c, "an object is not closed");
        if ((status = read_member(c, table, &next)) != 0)
            return status;
        ah_json_blanks(c);
        if (c->at == c->end)
            return ah_json_short(c, "an object is not closed");
        if (*c->at == '}')
            break;
        if (*c->at != ',')
            return ah_json_wrong(c, c->at, "expected ',' or '}'");
        c->at++;
    }
    c->at += !empty;
    return ah_table_end_row(table, line);
}

static int read_lines(struct ah_json_cursor *c, struct ah_table *table, int64_t enough, bool last)
{
    const char *end = c->end;
    c->open = false;
    while (c->at < end && table->rows < enough) {
        const char *from = c->at, *stop = memchr(from, '\n', (size_t)(end - from));
        if (!stop && !last)
            break;
        c->end = stop ? stop : end;
        c->line_start = from;
        ah_json_blanks(c);
        if (c->at < c->end) {
            AH_TRY(read_object(c, table));
            ah_json_blanks(c);
            if (c->at < c->end)
                return ah_json_wrong(c, c->at, "text after the object: each line has one");
        }
        c->at = stop ? stop + 1 : end;
        c->line += stop != NULL;
    }
    return 0;
}

/* One row of an array with the comma or bracket behind it. */
static int read_item(struct ah_json_cursor *c, struct ah_table *table, int *state)
{
    ah_json_blanks(c);
    if (c->at == c->end)
        return ah_json_short(c, "the array is not closed");
    if (*c->at == ']' && *state == BEFORE_FIRST) {
        c->at++;
        *state = BEHIND;
        return 0;
    }
    int status = read_object(c, table);
    if (status)
        return status;
    ah_json_blanks(c);
    if (c->at == c->end || (*c->at != ',' && *c->at != ']')) {
        status = c->at == c->end ? ah_json_short(c, "the array is not closed")
                                 : ah_json_wrong(c, c->at, "expected ',' or ']'");
        table->rows -= status == AH_JSON_NEEDS_MORE;
        return status;
    }
    *state = *c->at++ == ']' ? BEHIND : BEFORE_ROW;
    return 0;
}

static int read_array(struct ah_json_cursor *c, struct ah_table *table, int64_t enough, int *state)
{
    while (*state != BEHIND && table->rows < enough) {
        struct ah_json_cursor before = *c;
        int status = read_item(c, table, state);
        AH_TRY(status);
        if (status == AH_JSON_NEEDS_MORE) {
            *c = before;
            ah_table_drop_row(table);
            return 0;
        }
    }
    if (*state == BEHIND) {
        ah_json_blanks(c);
        if (c->at < c->end)
            return ah_json_wrong(c, c->at, "text after the array");
    }
    return 0;
}

int ah_rows_read_json(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last,
                      int64_t most, size_t *used)
{
    struct ah_json_cursor c = {.at = bytes, .end = bytes + count, .line_start = bytes, .line = rows->place.line + 1,
                               .open = !last, .plain = &rows->plain, .plain_room = &rows->plain_room};
    struct ah_json_cursor begin = c;
    int64_t enough = table->rows + most;
    int *state = &rows->place.state, status;
    if (*state == AT_BEGIN) {
        ah_json_blanks(&c);
        if (c.at == c.end && !last)
            return 0;
        bool array = c.at < c.end && *c.at == '[';
        *state = array ? BEFORE_FIRST : IN_LINES;
        if (array)
            c.at++;
        else
            c = begin;
    }
    status = *state == IN_LINES ? read_lines(&c, table, enough, last) : read_array(&c, table, enough, state);
    rows->place.line = c.line - 1;
    *used = (size_t)(c.at - bytes);
    return status;
}
