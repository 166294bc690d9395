/* A column of cells as a file has them: one buffer of bytes, the end and the kind of each cell. A run of empty cells is
 * one record, whatever its length: logs have many columns with values in few rows.
 *
 * Cells are raw text until they are converted: `guess` returns the narrowest type of a column, `tensor` its numbers. A
 * column is used by one thread at a time. */
#pragma once

#include <stdbool.h>

#include "tensor/tensor.h"

enum ah_cell {
    AH_CELL_FIELD,  /* text without quotes or types: a number where it reads as one */
    AH_CELL_STRING, /* text that stays text */
    AH_CELL_NUMBER, /* JSON's texts of a number, of true or false, of an array or object */
    AH_CELL_FLAG,
    AH_CELL_VALUE,
    AH_CELL_NONE, /* empty */
};

/* The narrowest type of a column. */
enum ah_guess { AH_GUESS_TEXT, AH_GUESS_INT, AH_GUESS_FLOAT, AH_GUESS_BOOL, AH_GUESS_MIXED };

/* A run of empty cells from cell `from` on, which ends where `empty` cells of the column have been empty. */
struct ah_packed_gap {
    int64_t from, empty;
};

struct ah_packed {
    char *bytes;
    size_t used, room;
    size_t *end;         /* in `bytes`, of each cell that is not empty */
    unsigned char *kind; /* enum ah_cell of the same */
    int64_t count;       /* of all cells */
    int64_t filled, space;
    struct ah_packed_gap *gap;
    size_t gaps, gap_room;
};

/* Append a cell. AH_ENOMEM. */
int ah_packed_add(struct ah_packed *packed, enum ah_cell kind, const char *text, size_t length);
/* Append empty cells until there are `count`. AH_ENOMEM. */
int ah_packed_pad(struct ah_packed *packed, int64_t count);
/* Remove the cells after the first `count`. */
void ah_packed_cut(struct ah_packed *packed, int64_t count);
/* Free the room for further cells. */
void ah_packed_trim(struct ah_packed *packed);
void ah_packed_free(struct ah_packed *packed);

/* The kind of cell i (i >= 0); AH_CELL_NONE from cell `count` on. */
enum ah_cell ah_packed_kind(const struct ah_packed *packed, int64_t i);
/* The bytes of cell i (i >= 0), which belong to the column; none of an empty one. */
const char *ah_packed_cell(const struct ah_packed *packed, int64_t i, size_t *length);
/* The number of the first cell that is not empty; `count` if all are. */
int64_t ah_packed_first(const struct ah_packed *packed);
/* Bytes that the column has allocated. */
size_t ah_packed_bytes(const struct ah_packed *packed);

/* int where all cells are whole numbers of 64 bits; float where all are numbers, or fields of which some, not all, are
 * empty; bool where all are true or false; text where all are fields or strings; else mixed. No cells: text. */
enum ah_guess ah_packed_guess(const struct ah_packed *packed);

/* Convert cell i to an element of bool, float32, float64, int32 or int64. Returns 1, or 0 for an empty cell (a field
 * without text is NaN among floats). AH_EINVAL: the text has the type expected and the cell found. */
int ah_packed_value(const struct ah_packed *packed, int64_t i, enum ah_dtype dtype, void *value);

/* Make a tensor [count] on the CPU of such a dtype. AH_EINVAL for an empty or wrong cell, whose number goes to
 * *wrong_at unless that is NULL. */
int ah_packed_tensor(struct ah_tensor **out, const struct ah_packed *packed, enum ah_dtype dtype, int64_t *wrong_at);
