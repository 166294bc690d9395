/* Rows go to their columns cell by cell, so that a file is walked once. A reader's state is 0 at the beginning of the
 * file, then defined by its kind. */
#include "data/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

enum { AT_BEGIN, IN_ROWS };

_Static_assert((int)AH_CSV_FIELDS == (int)AH_TABLE_COLUMNS, "a row of a CSV has a field for each column");

int ah_rows_open(struct ah_rows *rows, const struct ah_rows_format *format)
{
    *rows = (struct ah_rows){.format = *format};
    return format->kind == AH_ROWS_CSV ? ah_csv_open(&rows->csv, NULL, 0, format->delimiter, format->quote) : 0;
}

void ah_rows_close(struct ah_rows *rows)
{
    ah_csv_close(&rows->csv);
    free(rows->plain);
    *rows = (struct ah_rows){0};
}

static int refuse_zeros(const struct ah_rows *rows, const char *bytes, size_t count)
{
    const char *zero = count ? memchr(bytes, 0, count) : NULL;
    long long line = rows->place.line + 1;
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
        if (ah_table_find(table, csv->field[i].text, csv->field[i].length) != i)
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
    return ah_table_end_row(table, csv->line);
}

static int read_csv(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last,
                    int64_t most, size_t *used)
{
    struct ah_csv *csv = &rows->csv;
    int64_t enough = table->rows + most;
    int status = 0;
    ah_csv_feed(csv, bytes, count, !last);
    csv->next_line = rows->place.line + 1;
    while (status == 0 && table->rows < enough && (status = ah_csv_next(csv)) == 1) {
        bool first = rows->place.state == AT_BEGIN, is_header = first && rows->format.header;
        status = 0;
        if (first && table->columns == 0)
            status = take_names(table, csv, rows->format.header);
        else if (is_header && !rows->format.named)
            status = compare_names(table, csv);
        if (status == 0 && !is_header)
            status = add_row(table, csv);
        rows->place.state = IN_ROWS;
    }
    rows->place.line = csv->next_line - 1;
    *used = csv->at;
    return status;
}

/* Return the end of a line, and the begin of the next; NULL where the line continues beyond the buffer. */
static const char *end_of_line(const char *at, const char *end, bool last, const char **next)
{
    const char *stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!stop && !last)
        return NULL;
    *next = stop ? stop + 1 : end;
    stop = stop ? stop : end;
    return stop > at && stop[-1] == '\r' ? stop - 1 : stop;
}

static int add_text(struct ah_table *table, const char *from, const char *to, int64_t line)
{
    AH_TRY(ah_packed_add(&table->column[0], AH_CELL_STRING, from, (size_t)(to - from)));
    return ah_table_end_row(table, line);
}

static int read_lines(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last,
                      int64_t most, size_t *used)
{
    const char *at = bytes, *end = bytes + count, *next, *stop;
    int64_t enough = table->rows + most;
    while (at < end && table->rows < enough && (stop = end_of_line(at, end, last, &next))) {
        AH_TRY(add_text(table, at, stop, ++rows->place.line));
        at = next;
    }
    *used = (size_t)(at - bytes);
    return 0;
}

static int read_paragraphs(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last,
                           int64_t most, size_t *used)
{
    const char *at = bytes, *end = bytes + count, *next, *begin = NULL, *behind = NULL, *stop;
    int64_t enough = table->rows + most, line = rows->place.line, from = 0;
    *used = 0;
    while (at < end && table->rows < enough && (stop = end_of_line(at, end, last, &next))) {
        line++;
        if (stop > at) {
            from = begin ? from : line;
            begin = begin ? begin : at;
            behind = stop;
        } else if (begin) {
            AH_TRY(add_text(table, begin, behind, from));
            begin = NULL;
        }
        at = next;
        if (!begin) {
            *used = (size_t)(at - bytes);
            rows->place.line = line;
        }
    }
    if (begin && last && at == end) {
        AH_TRY(add_text(table, begin, behind, from));
        *used = count;
    }
    return 0;
}

static int read_document(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last,
                         int64_t most, size_t *used)
{
    *used = 0;
    if (!last || rows->place.state == IN_ROWS)
        return 0;
    rows->place.state = IN_ROWS;
    *used = count;
    return add_text(table, bytes, bytes + count, 1);
}

typedef int reader(struct ah_rows *, struct ah_table *, const char *, size_t, bool, int64_t, size_t *);

int ah_rows_read(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last, int64_t most,
                 size_t *used)
{
    static reader *const readers[] = {read_csv, ah_rows_read_json, read_lines, read_paragraphs, read_document};
    enum ah_rows_kind kind = rows->format.kind;
    size_t mark = 0;
    *used = 0;
    if (count == 0)
        bytes = "";
    AH_TRY(refuse_zeros(rows, bytes, count));
    if (rows->place.offset == 0) {
        if (count < 3 && !last)
            return 0;
        mark = count >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3) ? 3 : 0;
    }
    if (kind >= AH_ROWS_LINES && table->columns == 0)
        AH_TRY(ah_table_add_column(table, "text", 4));
    AH_TRY(readers[kind](rows, table, bytes + mark, count - mark, last, most, used));
    *used += *used || last ? mark : 0;
    rows->place.offset += (int64_t)*used;
    return 0;
}
