/* Files of rows and fields: CSV and its relatives.
 *
 * A row ends with a line (\n, \r\n, or the end of the file); empty lines and a byte order mark are passed over. A field
 * that begins with the quote goes to the next lone quote, across lines; two quotes stand for one (RFC 4180). The bytes
 * stay the caller's and are not changed. One thread uses a reader. */
#ifndef AH_DATA_CSV_H
#define AH_DATA_CSV_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ah_csv_field {
    const char *text;
    size_t length;
};

struct ah_csv {
    const char *bytes;
    size_t count, at;
    char delimiter;
    int quote;         /* -1: no quotes */
    int64_t row, line; /* of what was read last, from 1 */
    int64_t next_line;
    struct ah_csv_field *field;
    int fields, room;
    char *plain; /* texts of fields without their doubled quotes */
};

/* AH_EINVAL when delimiter or quote cannot be told from the rest. */
int ah_csv_open(struct ah_csv *csv, const void *bytes, size_t count, char delimiter, int quote);
void ah_csv_close(struct ah_csv *csv);

/* The next row into csv->field[0 .. fields), good until the next call. 1: a row; 0: the end; AH_EIO says which row and
 * line are damaged, and the reader is at its end. */
int ah_csv_next(struct ah_csv *csv);

#endif
