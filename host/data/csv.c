/* Fields point into the file's bytes; those with doubled quotes into `plain`, which is allocated for all bytes when the
 * first is met. */
#include "data/csv.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"

int ah_csv_open(struct ah_csv *csv, const void *bytes, size_t count, char delimiter, int quote)
{
    *csv = (struct ah_csv){.bytes = bytes, .count = count, .delimiter = delimiter, .quote = quote, .next_line = 1};
    if (delimiter == '\n' || delimiter == '\r' || quote == '\n' || quote == '\r' || quote == (unsigned char)delimiter)
        return ah_fail(AH_EINVAL, "delimiter and quote must differ from each other and from the ends of lines");
    if (count >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3))
        csv->at = 3;
    return 0;
}

void ah_csv_close(struct ah_csv *csv)
{
    free(csv->field);
    free(csv->plain);
    csv->field = NULL;
    csv->plain = NULL;
}

void ah_csv_feed(struct ah_csv *csv, const void *bytes, size_t count, bool more)
{
    csv->bytes = bytes;
    csv->count = count;
    csv->at = 0;
    csv->more = more;
}

static int csv_damaged(struct ah_csv *csv, const char *what)
{
    csv->at = csv->count;
    return ah_fail(AH_EIO, "line %lld: %s", (long long)csv->line, what);
}

/* Double the room for fields: 16, 32, ... AH_CSV_FIELDS. */
static int make_room(struct ah_csv *csv)
{
    if (csv->room == AH_CSV_FIELDS)
        return csv_damaged(csv, "more than 4096 fields");
    int room = csv->room ? 2 * csv->room : 16;
    struct ah_csv_field *larger = realloc(csv->field, (size_t)room * sizeof *larger);
    AH_TRY_MEMORY(larger, "out of memory");
    csv->field = larger;
    csv->room = room;
    return 0;
}

static inline int csv_add(struct ah_csv *csv, const char *text, size_t length)
{
    if (csv->fields == csv->room)
        AH_TRY(make_room(csv));
    csv->field[csv->fields++] = (struct ah_csv_field){text, length};
    return 0;
}

/* Is here the end of a line, or of the file? Its length goes to *bytes. */
static bool at_end(const struct ah_csv *csv, size_t *bytes)
{
    *bytes = 0;
    if (csv->at == csv->count)
        return true;
    if (csv->bytes[csv->at] == '\n')
        *bytes = 1;
    else if (csv->bytes[csv->at] == '\r' && csv->at + 1 < csv->count && csv->bytes[csv->at + 1] == '\n')
        *bytes = 2;
    return *bytes > 0;
}

static int read_plain(struct ah_csv *csv)
{
    const char *bytes = csv->bytes, delimiter = csv->delimiter;
    size_t from = csv->at, at = from, count = csv->count;
    for (; at < count; at++) {
        char c = bytes[at];
        if (c == delimiter || c == '\n' || (c == '\r' && at + 1 < count && bytes[at + 1] == '\n'))
            break;
    }
    csv->at = at;
    return csv_add(csv, bytes + from, at - from);
}

/* Copy a text with doubled quotes to `plain`, at the offset that it has in the file. */
static int copy_plain(struct ah_csv *csv, size_t from, size_t to)
{
    AH_TRY(ah_grow(&csv->plain, csv->count, &csv->plain_room, 1));
    size_t length = 0;
    for (size_t i = from; i < to; i++) {
        csv->plain[from + length++] = csv->bytes[i];
        i += csv->bytes[i] == (char)csv->quote;
    }
    return csv_add(csv, csv->plain + from, length);
}

static int read_quoted(struct ah_csv *csv)
{
    size_t from = ++csv->at, bytes;
    bool doubled = false;
    for (;; csv->at++) {
        if (csv->at == csv->count)
            return csv->more ? 0 : csv_damaged(csv, "a quote is not closed");
        char c = csv->bytes[csv->at];
        csv->next_line += c == '\n';
        if (c != (char)csv->quote)
            continue;
        if (csv->at + 1 == csv->count || csv->bytes[csv->at + 1] != (char)csv->quote)
            break;
        doubled = true;
        csv->at++;
    }
    size_t to = csv->at++;
    bool half_an_end = csv->more && csv->at + 1 == csv->count && csv->bytes[csv->at] == '\r';
    if (half_an_end)
        csv->at = csv->count;
    else if (!at_end(csv, &bytes) && csv->bytes[csv->at] != csv->delimiter)
        return csv_damaged(csv, "text after a closing quote");
    return doubled ? copy_plain(csv, from, to) : csv_add(csv, csv->bytes + from, to - from);
}

/* Read the fields of a row; *bytes is the length of its end of line, 0 at the end of the bytes. */
static int read_fields(struct ah_csv *csv, size_t *bytes)
{
    for (;;) {
        bool quoted = csv->quote >= 0 && csv->at < csv->count && csv->bytes[csv->at] == (char)csv->quote;
        AH_TRY(quoted ? read_quoted(csv) : read_plain(csv));
        if (at_end(csv, bytes))
            return 0;
        csv->at++; /* the delimiter */
    }
}

int ah_csv_next(struct ah_csv *csv)
{
    size_t bytes;
    csv->fields = 0;
    while (csv->at < csv->count && at_end(csv, &bytes)) {
        csv->at += bytes;
        csv->next_line++;
    }
    if (csv->at == csv->count)
        return 0;
    size_t begin = csv->at;
    csv->row++;
    csv->line = csv->next_line;
    AH_TRY(read_fields(csv, &bytes));
    if (csv->more && bytes == 0) {
        csv->at = begin;
        csv->next_line = csv->line;
        csv->row--;
        return 0;
    }
    csv->at += bytes;
    csv->next_line += bytes > 0;
    return 1;
}
