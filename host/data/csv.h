/* Files of rows and fields: CSV and its relatives.
 *
 * A row ends with a line (\n, \r\n, or the end of the file); empty lines and a byte order mark are passed over. A field
 * that begins with the quote goes to the next lone quote, across lines; two quotes within it are one (RFC 4180). The
 * caller keeps the bytes, which are not changed. A reader belongs to one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AH_CSV_FIELDS = 4096 };

struct ah_csv_field {
    const char *text;
    size_t length;
};

struct ah_csv {
    const char *bytes;
    size_t count, at;
    char delimiter;
    bool more;         /* the file continues after these bytes: a row at their end may be incomplete */
    int quote;         /* -1: no quotes */
    int64_t row, line; /* of the last row read, from 1 */
    int64_t next_line;
    struct ah_csv_field *field;
    int fields, room;
    char *plain; /* texts of fields without their doubled quotes */
    size_t plain_room;
};

/* Start reading. AH_EINVAL when delimiter and quote are equal, or one is a line end. */
int ah_csv_open(struct ah_csv *csv, const void *bytes, size_t count, char delimiter, int quote);
void ah_csv_close(struct ah_csv *csv);

/* Continue with other bytes, which begin with the next row. */
void ah_csv_feed(struct ah_csv *csv, const void *bytes, size_t count, bool more);

/* Read the next row into csv->field[0 .. fields), valid until the next call. Returns 1: a row; 0: the end, or with
 * `more` no complete row (the reader stays at its beginning); AH_EIO: a damaged row, or one of more than AH_CSV_FIELDS
 * fields; the text has the line where it begins, and the reader is at the row's end. */
int ah_csv_next(struct ah_csv *csv);
