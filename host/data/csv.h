/* Files of rows and fields: CSV and its relatives.
 *
 * A row ends with a line (\n, \r\n, or the end of the file); empty lines and a byte order mark are passed over. A field
 * that begins with the quote goes to the next lone quote, across lines; two quotes stand for one (RFC 4180). The bytes
 * stay the caller's and are not changed. One thread uses a reader. */
#ifndef AH_DATA_CSV_H
#define AH_DATA_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status/status.h"

enum { AH_CSV_FIELDS = 4096 };

struct ah_csv_field {
    const char *text;
    size_t length;
};

struct ah_csv {
    const char *bytes;
    size_t count, at;
    char delimiter;
    bool more;         /* the file goes on behind these bytes: a row that meets their end is not whole */
    int quote;         /* -1: no quotes */
    int64_t row, line; /* of what was read last, from 1 */
    int64_t next_line;
    struct ah_csv_field *field;
    int fields, room;
    char *plain; /* texts of fields without their doubled quotes */
    size_t plain_room;
};

/* AH_EINVAL when delimiter or quote cannot be told from the rest. */
int ah_csv_open(struct ah_csv *csv, const void *bytes, size_t count, char delimiter, int quote);
void ah_csv_close(struct ah_csv *csv);

/* Go on in other bytes, which are to begin where the next row does. */
void ah_csv_feed(struct ah_csv *csv, const void *bytes, size_t count, bool more);

/* The next row into csv->field[0 .. fields), good until the next call. 1: a row; 0: the end, or with `more` no row that
 * is whole (the reader stands where it begins); AH_EIO says on which line a damaged one begins, or one
 * of more than AH_CSV_FIELDS fields, and the reader is at its end. */
int ah_csv_next(struct ah_csv *csv);

#endif
