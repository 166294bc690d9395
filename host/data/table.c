/* Rows go to their columns cell by cell, so that a file is walked once. */
#include "data/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv.h"

static int find(const struct ah_table *table, const char *name, size_t length)
{
    for (int k = 0; k < table->columns; k++)
        if (strlen(table->name[k]) == length && !memcmp(table->name[k], name, length))
            return k;
    return -1;
}

int ah_table_add_column(struct ah_table *table, const char *name, size_t length)
{
    if (find(table, name, length) >= 0)
        return ah_fail(AH_EINVAL, "two columns are named '%.*s'", (int)length, name);
    if (table->columns == AH_TABLE_COLUMNS)
        return ah_fail(AH_EINVAL, "more than %d columns", AH_TABLE_COLUMNS);
    char **names = realloc(table->name, (size_t)(table->columns + 1) * sizeof *names);
    if (names)
        table->name = names;
    struct ah_packed *columns = realloc(table->column, (size_t)(table->columns + 1) * sizeof *columns);
    if (columns)
        table->column = columns;
    char *copy = malloc(length + 1);
    if (!names || !columns || !copy) {
        free(copy);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    memcpy(copy, name, length);
    copy[length] = '\0';
    table->name[table->columns] = copy;
    struct ah_packed *column = &table->column[table->columns++];
    *column = (struct ah_packed){0};
    for (int64_t i = 0; i < table->rows; i++)
        AH_TRY(ah_packed_add(column, AH_CELL_NONE, NULL, 0));
    return 0;
}

void ah_table_free(struct ah_table *table)
{
    for (int k = 0; k < table->columns; k++) {
        free(table->name[k]);
        ah_packed_free(&table->column[k]);
    }
    free(table->name);
    free(table->column);
    *table = (struct ah_table){0};
}

static int refuse_zeros(const char *bytes, size_t count)
{
    const char *zero = count ? memchr(bytes, 0, count) : NULL;
    long long line = 1;
    if (!zero)
        return 0;
    for (const char *at = bytes; (at = memchr(at, '\n', (size_t)(zero - at))); at++)
        line++;
    return ah_fail(AH_EIO, "line %lld: there is a byte 0 in it, which no text has", line);
}

static int take_names(struct ah_table *table, const struct ah_csv *csv, bool header)
{
    char number[16];
    for (int i = 0; i < csv->fields; i++) {
        const char *name = csv->field[i].text;
        size_t length = csv->field[i].length;
        if (!header) {
            length = (size_t)snprintf(number, sizeof number, "%d", i);
            name = number;
        }
        AH_TRY(ah_table_add_column(table, name, length));
    }
    return 0;
}

static int compare_names(const struct ah_table *table, const struct ah_csv *csv)
{
    if (csv->fields != table->columns)
        return ah_fail(AH_EIO, "line %lld: %d columns, the first file has %d", (long long)csv->line, csv->fields,
                       table->columns);
    for (int i = 0; i < csv->fields; i++)
        if (find(table, csv->field[i].text, csv->field[i].length) != i)
            return ah_fail(AH_EIO, "line %lld: column %d is '%.*s', in the first file '%s'", (long long)csv->line, i,
                           (int)csv->field[i].length, csv->field[i].text, table->name[i]);
    return 0;
}

static int add_row(struct ah_table *table, const struct ah_csv *csv)
{
    if (csv->fields != table->columns)
        return ah_fail(AH_EIO, "line %lld: %d fields, expected %d", (long long)csv->line, csv->fields,
                       table->columns);
    for (int i = 0; i < csv->fields; i++)
        AH_TRY(ah_packed_add(&table->column[i], AH_CELL_FIELD, csv->field[i].text, csv->field[i].length));
    table->rows++;
    return 0;
}

int ah_table_add_csv(struct ah_table *table, const void *bytes, size_t count, char delimiter, int quote, bool header,
                     bool named)
{
    struct ah_csv csv;
    bool first = true;
    AH_TRY(refuse_zeros(bytes, count));
    int status = ah_csv_open(&csv, bytes, count, delimiter, quote);
    while (status == 0 && (status = ah_csv_next(&csv)) == 1) {
        bool is_header = first && header;
        status = 0;
        if (first && table->columns == 0)
            status = take_names(table, &csv, header);
        else if (is_header && !named)
            status = compare_names(table, &csv);
        if (status == 0 && !is_header)
            status = add_row(table, &csv);
        first = false;
    }
    ah_csv_close(&csv);
    return status;
}

/* Where a line ends, and where the next begins. */
static const char *end_of_line(const char *at, const char *end, const char **next)
{
    const char *stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    *next = stop ? stop + 1 : end;
    stop = stop ? stop : end;
    return stop > at && stop[-1] == '\r' ? stop - 1 : stop;
}

static int add_text(struct ah_table *table, const char *from, const char *to)
{
    table->rows++;
    return ah_packed_add(&table->column[0], AH_CELL_STRING, from, (size_t)(to - from));
}

static int add_paragraphs(struct ah_table *table, const char *at, const char *end)
{
    const char *begin = NULL, *last = NULL, *next;
    for (; at < end; at = next) {
        const char *stop = end_of_line(at, end, &next);
        if (stop > at) {
            begin = begin ? begin : at;
            last = stop;
        } else if (begin) {
            AH_TRY(add_text(table, begin, last));
            begin = NULL;
        }
    }
    return begin ? add_text(table, begin, last) : 0;
}

int ah_table_add_text(struct ah_table *table, const void *bytes, size_t count, enum ah_text_unit unit)
{
    const char *at = bytes, *end = at ? at + count : at, *next;
    AH_TRY(refuse_zeros(bytes, count));
    if (table->columns == 0)
        AH_TRY(ah_table_add_column(table, "text", 4));
    if (count >= 3 && !memcmp(at, "\xef\xbb\xbf", 3))
        at += 3;
    if (unit == AH_TEXT_DOCUMENT)
        return add_text(table, at, end);
    if (unit == AH_TEXT_PARAGRAPH)
        return add_paragraphs(table, at, end);
    for (; at < end; at = next) {
        const char *stop = end_of_line(at, end, &next);
        AH_TRY(add_text(table, at, stop));
    }
    return 0;
}
