/* Rows stored by column, filled by data/rows.h.
 *
 * A table is filled from one file after the other; a later file has the columns of the first (JSON lines may add more).
 * It records the file and line of each row. After an error it can only be freed. */
#pragma once

#include "data/packed.h"

enum { AH_TABLE_COLUMNS = 4096 };

/* From `row` on each row is on the line after that of the previous row. */
struct ah_table_mark {
    int64_t row, line;
    int file;
};

struct ah_table {
    char **name;
    int16_t *slot; /* hash table of the names: column + 1, 0: empty */
    struct ah_packed *column;
    int columns;
    int64_t rows;
    int file; /* file number of the next rows, set by the caller */
    struct ah_table_mark *mark;
    size_t marks, mark_room;
};

/* Add a column, whose cells are empty in the rows so far. AH_EINVAL: the name is there already, or
 * there are AH_TABLE_COLUMNS. */
int ah_table_add_column(struct ah_table *table, const char *name, size_t length);

/* Return the column of a name, -1 when there is none. */
int ah_table_find(const struct ah_table *table, const char *name, size_t length);

/* Count a row, of this line, whose cells are in their columns. A column without a cell for it stays shorter: the cell
 * is empty, and ah_table_fill stores it. */
int ah_table_end_row(struct ah_table *table, int64_t line);

/* Store a column's empty cells of the last rows, so that it has `rows` cells. AH_ENOMEM. */
int ah_table_fill(struct ah_table *table, int column);

/* Remove the cells of a row that was not ended. */
void ah_table_drop_row(struct ah_table *table);

/* Return a row's line, from 1, and its file, from 0. */
int64_t ah_table_line(const struct ah_table *table, int64_t row, int *file);

/* Remove all rows; the columns stay. */
void ah_table_clear(struct ah_table *table);
void ah_table_free(struct ah_table *table);
