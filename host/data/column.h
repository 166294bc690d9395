/* One column of a data set as filling a batch sees it: addresses and sizes, no tensor headers.
 *
 * The tensors must outlive it. Any thread may fill; nothing here allocates. */
#ifndef AH_DATA_COLUMN_H
#define AH_DATA_COLUMN_H

#include "data/gather.h"

struct ah_column {
    const char *source;
    const float *table;
    int64_t channels, plane; /* a row of the result is channels x plane bytes, when there is a table */
    size_t row_bytes, out_bytes;
    size_t scratch; /* bytes of workspace that filling needs, aligned to 4 */
    bool moves;     /* by the steps of `grid` */
    bool erases;    /* a part of the table's result */
    bool random;    /* some of them draw */
    struct ah_grid grid;
    struct ah_erase erase;
};

/* Compile a column's description. AH_EINVAL: parts of it do not fit together; the text names them. */
int ah_column_describe(struct ah_column *column, const struct ah_gather_column *spec);

/* The rows of an order, which has been checked, one after the other into `to`. */
void ah_column_fill(const struct ah_column *column, char *to, const struct ah_gather_order *order, void *scratch);

#endif
