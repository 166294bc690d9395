/* Rows of a file that is read piece by piece: CSV and TSV, JSON, text.
 *
 * Errors name the line. A byte 0 is an error: no text has one. A reader belongs to one thread. */
#pragma once

#include "data/csv.h"
#include "data/table.h"

/* JSON: an object on each line, or one array of objects; a column that a row lacks is empty there. Text: one column,
 * "text", of lines, paragraphs (separated by empty lines), or the whole file. */
enum ah_rows_kind { AH_ROWS_CSV, AH_ROWS_JSON, AH_ROWS_LINES, AH_ROWS_PARAGRAPHS, AH_ROWS_DOCUMENT };

/* With `header` the first row of a CSV holds names: those of the columns of an empty table, to be passed over where the
 * caller named them (`named`), else the same as the table's. Without columns and header they are named 0, 1, ... */
struct ah_rows_format {
    enum ah_rows_kind kind;
    char delimiter;
    int quote; /* -1: none */
    bool header, named;
};

/* A position in a file: bytes, lines, the reader's state. All 0 is the beginning. */
struct ah_rows_place {
    int64_t offset, line;
    int state;
};

struct ah_rows {
    struct ah_rows_format format;
    struct ah_rows_place place;
    struct ah_csv csv;
    char *plain; /* a text of JSON without its escapes */
    size_t plain_room;
};

/* Start reading. AH_EINVAL as ah_csv_open. */
int ah_rows_open(struct ah_rows *rows, const struct ah_rows_format *format);
void ah_rows_close(struct ah_rows *rows);

/* Add the complete rows in `bytes`, which begin at the reader's place, to the table, at most `most`; `last`: the file
 * ends with these bytes. *used: the bytes read, by which the place has advanced. No row and fewer bytes used than
 * `count`: more bytes are needed; at the end only blanks are left. AH_EIO. */
int ah_rows_read(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last, int64_t most,
                 size_t *used);

/* The same of JSON, for ah_rows_read. */
int ah_rows_read_json(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last,
                      int64_t most, size_t *used);
