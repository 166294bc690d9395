/* Arguments of the kernels that count numbers and look them up. */
#pragma once

#include <stdint.h>

enum { AH_COUNT_THREADS = 256, AH_COUNT_SHARED = 4096 };

/* The range of the numbers to count. */
struct ah_count_range {
    uint64_t most;
    uint64_t refused; /* the first place of a number below 0, or of one that is too large; all bits: none */
};

/* Count each of 0..bins-1 among n int64; blocks count by themselves where `bins` is at most
 * AH_COUNT_SHARED. */
struct ah_count_args {
    uint64_t x, range, counts;
    int64_t n, bins;
};

/* Count the sorted edges of its row before each number: int64, or int32 with `narrow`. */
struct ah_search_sorted_args {
    uint64_t edges, x, to;
    int64_t n, edge_count, per_row;
    int32_t edge_dtype, dtype; /* enum ah_dtype */
    int32_t right, narrow, one_row, by_double;
};
