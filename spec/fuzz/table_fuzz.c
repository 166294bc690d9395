/* Fuzz target: files of rows as columns, by comma with quotes, by tab without, as JSON and as text. Whatever the bytes
 * are, the columns have a cell for each row and convert to their guessed dtypes, or there is an error text; and
 * whatever pieces the file arrives in, the rows are the same. The first byte selects the pieces.
 * sources: host/data/csv.c host/data/json_cursor.c host/data/packed.c host/data/rows.c host/data/rows_json.c
 * sources: host/data/table.c host/base/memory/array.c TENSORS */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "data/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void convert(const struct ah_packed *column)
{
    static const enum ah_dtype dtypes[] = {
        [AH_GUESS_INT] = AH_I64, [AH_GUESS_FLOAT] = AH_F64, [AH_GUESS_BOOL] = AH_BOOL,
    };
    struct ah_tensor *tensor;
    enum ah_guess guess = ah_packed_guess(column);
    size_t total = 0, length;
    for (int64_t i = 0; i < column->count; i++) {
        const char *text = ah_packed_cell(column, i, &length);
        for (size_t k = 0; k < length; k++)
            total += (unsigned char)text[k] > 0;
    }
    if (total > column->used)
        abort();
    if (guess == AH_GUESS_TEXT || guess == AH_GUESS_MIXED)
        return;
    if (ah_packed_tensor(&tensor, column, dtypes[guess], NULL) < 0)
        abort();
    ah_tensor_release(tensor);
}

/* Read in pieces of `piece` bytes, at most `most` rows at a time. */
static int read_all(struct ah_table *table, const struct ah_rows_format *format, const char *bytes, size_t count,
                    size_t piece, int64_t most)
{
    struct ah_rows rows;
    size_t from = 0, to = 0, used;
    int status = ah_rows_open(&rows, format);
    while (status == 0) {
        int64_t before = table->rows;
        status = ah_rows_read(&rows, table, bytes + from, to - from, to == count, most, &used);
        if (used > to - from)
            abort();
        from += used;
        if (status < 0 || (table->rows == before && to == count))
            break;
        if (table->rows == before)
            to = count - to < piece ? count : to + piece;
    }
    ah_rows_close(&rows);
    return status;
}

static void fill(struct ah_table *table)
{
    for (int k = 0; k < table->columns; k++)
        if (ah_table_fill(table, k) < 0)
            abort();
}

/* Cells by number are the filled ones in order, with as many empty ones between them as their number implies. */
static void check_cells(const struct ah_packed *column)
{
    size_t length, total = 0;
    int64_t filled = 0;
    for (int64_t i = 0; i < column->count; i++) {
        enum ah_cell kind = ah_packed_kind(column, i);
        ah_packed_cell(column, i, &length);
        total += length;
        if (kind != AH_CELL_NONE && kind != (enum ah_cell)column->kind[filled++])
            abort();
        if (kind != AH_CELL_NONE && total != column->end[filled - 1])
            abort();
        if (kind == AH_CELL_NONE && (length || (filled == 0 && i >= ah_packed_first(column))))
            abort();
    }
    if (filled != column->filled || total != column->used)
        abort();
}

static void compare(const struct ah_table *a, const struct ah_table *b)
{
    int file;
    if (a->rows != b->rows || a->columns != b->columns)
        abort();
    for (int k = 0; k < a->columns; k++) {
        const struct ah_packed *one = &a->column[k], *two = &b->column[k];
        if (strcmp(a->name[k], b->name[k]) || one->used != two->used || one->count != two->count ||
            (one->used && memcmp(one->bytes, two->bytes, one->used)) ||
            one->filled != two->filled || one->gaps != two->gaps ||
            (one->filled && (memcmp(one->end, two->end, (size_t)one->filled * sizeof *one->end) ||
                             memcmp(one->kind, two->kind, (size_t)one->filled))) ||
            (one->gaps && memcmp(one->gap, two->gap, one->gaps * sizeof *one->gap)))
            abort();
    }
    for (int64_t i = 0; i < a->rows; i++)
        if (ah_table_line(a, i, &file) != ah_table_line(b, i, &file))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count)
{
    const char *bytes = (const char *)input;
    size_t piece = count ? 1 + input[0] % 32u : 1;
    for (int way = 0; way < 8; way++) {
        struct ah_table table = {0}, other = {0};
        struct ah_rows_format format = {.kind = way < 4 ? AH_ROWS_CSV : (enum ah_rows_kind)(way - 3),
                                        .delimiter = way & 1 ? '\t' : ',', .quote = way & 1 ? -1 : '"',
                                        .header = way & 2};
        int status = read_all(&table, &format, bytes, count, count, INT64_MAX / 2);
        if (status < 0 && !*ah_error_text())
            abort();
        int again = read_all(&other, &format, bytes, count, piece, 1 + (int64_t)piece % 3);
        if ((again < 0) != (status < 0)) /* which of two errors may differ */
            abort();
        fill(&table);
        fill(&other);
        if (status == 0)
            compare(&table, &other);
        for (int k = 0; k < table.columns && status == 0; k++) {
            if (table.column[k].count != table.rows)
                abort();
            check_cells(&table.column[k]);
            ah_packed_trim(&table.column[k]);
            convert(&table.column[k]);
        }
        ah_table_free(&table);
        ah_table_free(&other);
    }
    return 0;
}
