/* Arguments of the kernels that make numbers for comparing algorithms of a product, and compare their results; and of
 * products of integers. */
#pragma once

#include <stdint.h>

enum { AH_MATMUL_THREADS = 256 };

/* A stack of `batch` matrices in memory, each of `lines` lines of `line` numbers, `ld` numbers apart. */
struct ah_matmul_fill_args {
    uint64_t to;
    int64_t batch, stride, lines, line, ld;
    int32_t along;   /* the depth is the place in a line, else the line */
    int32_t negates; /* the second half of the depth */
};

struct ah_matmul_compare_args {
    uint64_t a, b; /* of `count` times 16 bytes */
    int64_t count;
    uint64_t differ; /* a 32-bit word that becomes 1 where one bit is not the same */
};

enum { AH_INTEGER_TILE = 32, AH_INTEGER_ROWS = 8 }; /* AH_INTEGER_ROWS rows of a tile are a block's threads */

/* out = a b of a batch: elements from one matrix, row and column to the next; `out` is row-major, without gaps. */
struct ah_matmul_integer_args {
    uint64_t a, b, out;
    int64_t batch, rows, columns, depth;
    int64_t a_step[3], b_step[3];
    int64_t row_tiles, column_tiles;
};
