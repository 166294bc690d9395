/* Rows of a file that comes piece by piece: CSV and TSV, JSON, text.
 *
 * What is wrong is told with its line. A byte 0 is refused: no text has one. One thread uses a reader. */
#ifndef AH_DATA_ROWS_H
#define AH_DATA_ROWS_H

#include "data/csv.h"
#include "data/table.h"

/* JSON: an object on each line, or one array of objects; a column that a row has not is empty there. Text: one column,
 * "text", of lines, paragraphs (what empty lines part), or the whole file. */
enum ah_rows_kind { AH_ROWS_CSV, AH_ROWS_JSON, AH_ROWS_LINES, AH_ROWS_PARAGRAPHS, AH_ROWS_DOCUMENT };

/* With `header` the first row of a CSV holds names: those of the columns of an empty table, to be passed over where the
 * caller named them (`named`), else the same as the table's. Without columns and header they are named 0, 1, ... */
struct ah_rows_format {
    enum ah_rows_kind kind;
    char delimiter;
    int quote; /* -1: none */
    bool header, named;
};

/* Where a file was read to: bytes, lines, and in which state. All 0 is its beginning. */
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

/* AH_EINVAL: the format's delimiter and quote cannot be told from the rest. */
int ah_rows_open(struct ah_rows *rows, const struct ah_rows_format *format);
void ah_rows_close(struct ah_rows *rows);

/* Put the rows that are whole in `bytes`, which begin at the reader's place, into the table, at most `most`; `last`
 * when the file ends with them. *used: how many bytes are done with, by which the place has moved. No row and not all
 * used: more bytes are needed, and at the end nothing is left but blanks. AH_EIO. */
int ah_rows_read(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last, int64_t most,
                 size_t *used);

/* The same of JSON, for ah_rows_read. */
int ah_rows_read_json(struct ah_rows *rows, struct ah_table *table, const char *bytes, size_t count, bool last,
                      int64_t most, size_t *used);

#endif
