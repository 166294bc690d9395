/* Files of rows, read into columns: CSV and TSV, JSON lines, lines of text.
 *
 * A table takes one file after the other; a later file has the columns of the first (JSON lines may bring more). What
 * is wrong in a file is told with its line, and the table is then to be freed. A byte 0 is refused: no text has one. */
#ifndef AH_DATA_TABLE_H
#define AH_DATA_TABLE_H

#include "data/packed.h"

enum { AH_TABLE_COLUMNS = 4096 };

struct ah_table {
    char **name;
    struct ah_packed *column;
    int columns;
    int64_t rows;
};

/* Add a column without cells, or with empty ones in a table that has rows. AH_EINVAL: the name is there already, or
 * there are AH_TABLE_COLUMNS. */
int ah_table_add_column(struct ah_table *table, const char *name, size_t length);
void ah_table_free(struct ah_table *table);

/* quote is -1 for none. With `header` the first row holds names: those of the columns of an empty table, to be passed
 * over where the caller named them (`named`), else the same as the table's. Without columns and header they are named
 * 0, 1, ... */
int ah_table_add_csv(struct ah_table *table, const void *bytes, size_t count, char delimiter, int quote, bool header,
                     bool named);

/* An object on each line, or one array of objects. A column that a row has not is empty there. */
int ah_table_add_json(struct ah_table *table, const void *bytes, size_t count);

/* One column, "text": each line, each paragraph (what empty lines part), or the whole file. */
enum ah_text_unit { AH_TEXT_LINE, AH_TEXT_PARAGRAPH, AH_TEXT_DOCUMENT };
int ah_table_add_text(struct ah_table *table, const void *bytes, size_t count, enum ah_text_unit unit);

#endif
