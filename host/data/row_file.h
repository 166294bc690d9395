/* A file of rows that is read block by block, plain or compressed by gzip; nothing but a block is held. */
#pragma once

#include "data/rows.h"

struct ah_row_file;

/* AH_EIO when the path names no regular file that can be read. */
int ah_row_file_open(struct ah_row_file **out, const char *path, const struct ah_rows_format *format);
void ah_row_file_close(struct ah_row_file *file); /* NULL is ignored */

/* Add rows, at most `most` and of about one block of bytes; none at the end of the file. AH_EIO: the text names the
 * line. */
int ah_row_file_read(struct ah_row_file *file, struct ah_table *table, int64_t most);

/* Return the place of the next row, and move to a place, which may be another reader's of the same file. Moving back in
 * a compressed file reads it again from its beginning. */
struct ah_rows_place ah_row_file_place(const struct ah_row_file *file);
int ah_row_file_seek(struct ah_row_file *file, struct ah_rows_place place);
