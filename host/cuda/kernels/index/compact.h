/* Arguments of the kernels that work on the places where a mask is true. The mask is cut into tiles: the true bytes of
 * each are counted, the counts become offsets, and each tile ranks its own places behind those of the tiles before. */
#pragma once

#include <stdint.h>

enum { AH_COMPACT_THREADS = 256, AH_COMPACT_ROUNDS = 8, AH_COMPACT_TILE = AH_COMPACT_THREADS * AH_COMPACT_ROUNDS,
       AH_COMPACT_SUM_THREADS = 1024, AH_COMPACT_SUM_EACH = 4, AH_COMPACT_DIMS = 8 };

struct ah_compact_args {
    uint64_t mask, offsets; /* bytes; int64 [tiles + 1]: the last is the number of true ones */
    int64_t n, tiles;
    uint64_t to, from;
    int64_t room; /* ranks from here on are left out */
    int64_t size[AH_COMPACT_DIMS]; /* of the mask, for the coordinates of places */
    int32_t ndim;
};
