/* Arguments of the distances of all pairs of rows. The pair (i, j), i < j, follows those of the rows before i. */
#pragma once

#include <stdint.h>

enum {
    AH_DISTANCE_TILE = 16,   /* rows of one side of a block's pairs */
    AH_DISTANCE_WIDTH = 32,  /* elements of them at a time; their terms are added up in the element type */
    AH_DISTANCE_THREADS = 256,
};
enum ah_distance_norm { AH_DISTANCE_COUNT, AH_DISTANCE_ABSOLUTE, AH_DISTANCE_SQUARE, AH_DISTANCE_LARGEST,
                        AH_DISTANCE_POWER };

struct ah_distance_args {
    uint64_t x, distance;
    uint64_t g, gx; /* backward */
    int64_t n, width;
    double p;
    int32_t norm;
};
