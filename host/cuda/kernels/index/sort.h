/* Arguments of the sorting kernels. An element's key is an unsigned number of 8, 16, 32 or 64 bits in the order of the
 * values: nan is the largest, -0 equals 0, and `flip` turns the order round. */
#pragma once

#include <stdint.h>

enum { AH_SORT_THREADS = 256, AH_SELECT_THREADS = 1024, AH_SORT_TILE = 2048 };

/* `lines` of n elements, one after another; the first `keep` of each, in order, are wanted. */
struct ah_sort_args {
    uint64_t x;
    uint64_t keys, order;     /* of all elements: keys, and their sorted order */
    uint64_t values, indices; /* [lines, keep]; values may be 0 */
    uint64_t flip;
    int64_t lines, n, keep;
    int64_t padded;           /* the power of two that a line fills in a tile, the kept of it in a selection */
    int32_t dtype;            /* enum ah_dtype */
    int32_t bits;             /* of a key; where a key holds its line too, that is in the bits above them */
    int32_t with_line;
    int32_t place_bits;       /* of a place in a line, rounded up to bytes */
};

/* unique: over n sorted keys of `item` bytes. */
struct ah_unique_args {
    uint64_t keys, order, marks; /* marks: is the key another one than that before it? */
    uint64_t starts;             /* int64 [groups]: the first of each group */
    uint64_t x, values, counts, inverse;
    uint64_t nan;                /* the key that equals none; 0: there is none */
    int64_t n, groups;
    int32_t item;
    int32_t dtype; /* enum ah_dtype: of x and the values */
};
