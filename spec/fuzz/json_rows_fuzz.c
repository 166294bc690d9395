/* Fuzz target: lines of JSON against jansson. An object of jansson is a row with the same members, in order and
 * kind, and text that it refuses is refused; but a whole number beyond 64 bits, which it refuses, is a number here.
 * sources: host/data/csv.c host/data/json_cursor.c host/data/packed.c host/data/rows.c host/data/rows_json.c
 * sources: host/data/table.c host/base/memory/array.c TENSORS */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void compare_value(const struct ah_packed *column, const json_t *value)
{
    size_t length;
    const char *text = ah_packed_cell(column, 0, &length);
    double real = 0;
    int64_t whole = 0;
    switch (json_typeof(value)) {
    case JSON_STRING:
        if (ah_packed_kind(column, 0) != AH_CELL_STRING || length != json_string_length(value) ||
            memcmp(text, json_string_value(value), length))
            abort();
        return;
    case JSON_INTEGER:
        if (ah_packed_value(column, 0, AH_I64, &whole) != 1 || whole != json_integer_value(value))
            abort();
        return;
    case JSON_REAL:
        if (ah_packed_guess(column) != AH_GUESS_FLOAT || ah_packed_value(column, 0, AH_F64, &real) != 1 ||
            memcmp(&real, &(double){json_real_value(value)}, sizeof real))
            abort();
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        if (ah_packed_kind(column, 0) != AH_CELL_FLAG || (*text == 't') != json_is_true(value))
            abort();
        return;
    case JSON_NULL:
        if (ah_packed_kind(column, 0) != AH_CELL_NONE)
            abort();
        return;
    default:
        if (ah_packed_kind(column, 0) != AH_CELL_VALUE)
            abort();
    }
}

static int read_line(struct ah_table *table, const char *line, size_t count)
{
    struct ah_rows rows;
    struct ah_rows_format format = {.kind = AH_ROWS_JSON, .quote = -1};
    size_t used;
    if (ah_rows_open(&rows, &format) < 0)
        abort();
    int status = ah_rows_read(&rows, table, line, count, true, 2, &used);
    ah_rows_close(&rows);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_table table = {0};
    json_error_t error;
    const char *key, *line = (const char *)bytes;
    json_t *value, *object;
    const char *first = line;
    while (first < line + count && *first && strchr(" \t\r", *first))
        first++;
    /* Only input that is read as lines: no mark, no array, no second line; and no byte 0, which jansson reads as a
     * blank. */
    if (first == line + count || *first != '{' || memchr(line, '\n', count) || memchr(line, 0, count) || count > 350)
        return 0;
    int status = read_line(&table, line, count);
    object = json_loadb(line, count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!object && status == 0 && !strstr(error.text, "too big"))
        abort();
    if (object && (status < 0 || table.rows != 1 || (size_t)table.columns != json_object_size(object)))
        abort();
    int at = 0;
    json_object_foreach(object, key, value)
    {
        if (strcmp(table.name[at], key))
            abort();
        compare_value(&table.column[at++], value);
    }
    json_decref(object);
    ah_table_free(&table);
    return 0;
}
