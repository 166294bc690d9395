/* One column of a data set as filling a batch sees it: addresses and sizes, no tensor headers.
 *
 * The tensors must outlive it. Any thread may fill; nothing here allocates. */
#pragma once

#include <stddef.h>

#include "data/erase.h"
#include "data/grid.h"
#include "tensor/tensor.h"

struct ah_gather_column {
    struct ah_tensor *source; /* [rows, ...], contiguous, on the CPU */
    struct ah_tensor *table;  /* NULL, or float32 [channels, 256]: byte b of channel c becomes table[c][b] */
    struct ah_grid *grid;     /* NULL, or the steps of a uint8 column; copied, checked by ah_gather_new */
    struct ah_erase *erase;   /* NULL, or the erasing of rows with a grid and a table; copied, checked */
    int ndim;                 /* the shape of one row of the result; as many elements as a row of `source`, or as the
                               * grid's result */
    int64_t size[AH_MAX_DIMS - 1];
};

/* The rows of a batch, and the source of each row's random numbers. */
struct ah_gather_order {
    int64_t count;
    const int64_t *row;
    uint64_t seed;         /* of the pass */
    const int64_t *sample; /* the stream of each; NULL: the row's number */
    const uint32_t *turn;  /* and its turn; NULL: 0 */
};

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
