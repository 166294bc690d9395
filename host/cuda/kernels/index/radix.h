/* Arguments of the radix sort's kernels: one pass over 8 bits of unsigned keys, each with a 32-bit value; or all of it
 * in one block, where they fit a tile. */
#pragma once

#include <stdint.h>

enum { AH_RADIX_THREADS = 256, AH_RADIX_DIGITS = 256, AH_RADIX_ROUNDS = 8,
       AH_RADIX_TILE = AH_RADIX_THREADS * AH_RADIX_ROUNDS };

struct ah_radix_args {
    uint64_t keys, values, to_keys, to_values; /* values 0: each element's place */
    uint64_t counts; /* uint32 [digits, tiles]: counts of a digit; after the scan those before the tile */
    uint64_t totals; /* uint32 [digits]: counts of each digit in all */
    int64_t n, tiles;
    int32_t shift;
    int32_t bits, padded; /* radix_tile: of a key, and the power of two from n on */
};
