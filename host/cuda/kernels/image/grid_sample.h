/* Arguments of sampling images and volumes at the locations of a grid. A location reads some input positions, its
 * corners, with weights: the product of those of its taps along each axis. */
#pragma once

#include <stdint.h>

enum { AH_GRID_THREADS = 256, AH_GRID_CHANNELS = 16 /* that a thread reads */ };
enum ah_grid_mode { AH_GRID_BILINEAR, AH_GRID_NEAREST, AH_GRID_BICUBIC };
enum ah_grid_padding { AH_GRID_ZEROS, AH_GRID_BORDER, AH_GRID_REFLECTION };

/* `pixels`: locations of a sample; `volume`: elements of a plane. */
struct ah_grid_args {
    uint64_t x, grid, y; /* y: the output, or its gradient */
    uint64_t gx, ggrid;
    uint64_t keys, weight, order; /* of the entries: a corner of a location each, corners one after another */
    int64_t n, c, volume, pixels, size[3];
    int64_t first, samples; /* the samples whose entries these are */
    int32_t space, mode, padding, align_corners;
    int32_t wide; /* keys of 64 bits */
};
