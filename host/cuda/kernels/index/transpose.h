/* Arguments of the transposing kernels: `batch` matrices of rows x columns items. Tiles are counted along rows, then
 * along columns, then over the batch; a block processes every gridDim.x-th. */
#pragma once

#include <stdint.h>

enum { AH_TRANSPOSE_TILE = 32, AH_TRANSPOSE_ROWS = 8 };

struct ah_transpose_args {
    uint64_t to, from;
    int64_t batch, rows, columns, row_tiles, column_tiles;
};
