/* Rows of JSON: jansson reads a line, its members go to their columns as text, and the tree is gone again. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/table.h"

/* Members mostly come in the order of the row before. */
static int column_of(struct ah_table *table, const char *name, int expected)
{
    for (int k = 0; k < table->columns; k++) {
        int at = (expected + k) % table->columns;
        if (!strcmp(table->name[at], name))
            return at;
    }
    AH_TRY(ah_table_add_column(table, name, strlen(name)));
    return table->columns - 1;
}

static int add_value(struct ah_packed *column, const json_t *value)
{
    char number[64];
    int length = 0;
    switch (json_typeof(value)) {
    case JSON_STRING:
        return ah_packed_add(column, AH_CELL_STRING, json_string_value(value), json_string_length(value));
    case JSON_TRUE: return ah_packed_add(column, AH_CELL_FLAG, "true", 4);
    case JSON_FALSE: return ah_packed_add(column, AH_CELL_FLAG, "false", 5);
    case JSON_NULL: return ah_packed_add(column, AH_CELL_NONE, NULL, 0);
    case JSON_INTEGER:
        length = snprintf(number, sizeof number, "%" PRId64, (int64_t)json_integer_value(value));
        return ah_packed_add(column, AH_CELL_NUMBER, number, (size_t)length);
    case JSON_REAL:
        length = snprintf(number, sizeof number, "%.17g", json_real_value(value));
        if (!strpbrk(number, ".en")) /* 2.0 is no whole number */
            length += snprintf(number + length, sizeof number - (size_t)length, ".0");
        return ah_packed_add(column, AH_CELL_NUMBER, number, (size_t)length);
    default: break;
    }
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        return ah_fail(AH_ENOMEM, "out of memory");
    int status = ah_packed_add(column, AH_CELL_VALUE, text, strlen(text));
    free(text);
    return status;
}

static int add_object(struct ah_table *table, json_t *object)
{
    const char *key;
    json_t *value;
    int next = 0;
    if (!json_is_object(object))
        return ah_fail(AH_EIO, "expected an object with the row's columns by name");
    json_object_foreach(object, key, value)
    {
        int at = column_of(table, key, next);
        AH_TRY(at);
        AH_TRY(add_value(&table->column[at], value));
        next = at + 1;
    }
    table->rows++;
    for (int k = 0; k < table->columns; k++)
        if (table->column[k].count < table->rows)
            AH_TRY(ah_packed_add(&table->column[k], AH_CELL_NONE, NULL, 0));
    return 0;
}

enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY };

static int add_array(struct ah_table *table, const char *bytes, size_t count)
{
    json_error_t error;
    size_t i;
    json_t *item, *array = json_loadb(bytes, count, FLAGS, &error);
    if (!array)
        return ah_fail(AH_EIO, "line %d, column %d: %s", error.line, error.column, error.text);
    int status = 0;
    json_array_foreach(array, i, item)
    {
        status = add_object(table, item);
        if (status < 0) {
            status = ah_fail_prefix(status, "item %zu", i);
            break;
        }
    }
    json_decref(array);
    return status;
}

static int add_line(struct ah_table *table, const char *from, size_t length, long long number)
{
    json_error_t error;
    json_t *object = json_loadb(from, length, FLAGS, &error);
    if (!object)
        return ah_fail(AH_EIO, "line %lld, column %d: %s", number, error.column, error.text);
    int status = add_object(table, object);
    json_decref(object);
    return status < 0 ? ah_fail_prefix(status, "line %lld", number) : 0;
}

int ah_table_add_json(struct ah_table *table, const void *bytes, size_t count)
{
    const char *at = bytes, *end = at ? at + count : at;
    if (count >= 3 && !memcmp(at, "\xef\xbb\xbf", 3))
        at += 3;
    const char *first = at;
    while (first < end && strchr(" \t\r\n", *first) && *first)
        first++;
    if (first < end && *first == '[')
        return add_array(table, at, (size_t)(end - at));
    for (long long line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        size_t blank = 0, length = (size_t)(stop - at);
        while (blank < length && (at[blank] == ' ' || at[blank] == '\t' || at[blank] == '\r'))
            blank++;
        if (blank < length)
            AH_TRY(add_line(table, at, length, line));
        at = stop < end ? stop + 1 : end;
    }
    return 0;
}
