/* Steps that move the pixels of an image as they are: edges, crops, flips.
 *
 * Whatever the steps, a pixel of the result is a pixel of the source or a filling, and its row does not depend on its
 * column. So the steps of one sample are worked out on one list of rows and one of columns, and the bytes move once.
 * Random steps draw from the sample's stream in the order of the steps, the numbers that the same transforms draw when
 * they are called on an image. Any thread may apply a grid that has been checked; it allocates nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "data/stream.h"

enum { AH_GRID_STEPS = 12, AH_GRID_CHANNELS = 4 };

enum ah_grid_kind { AH_GRID_PAD, AH_GRID_CROP, AH_GRID_RANDOM_CROP, AH_GRID_FLIP };
enum ah_grid_edge { AH_EDGE_CONSTANT, AH_EDGE_NEAREST, AH_EDGE_REFLECT, AH_EDGE_SYMMETRIC };

/* Pairs are rows and columns. */
struct ah_grid_step {
    enum ah_grid_kind kind;
    int64_t before[2], after[2]; /* PAD */
    enum ah_grid_edge edge;
    uint8_t fill[AH_GRID_CHANNELS]; /* a constant edge's byte in each channel */
    int64_t at[2], size[2];         /* CROP; RANDOM_CROP draws `at`, rows first, where there is a choice */
    int axis;                       /* FLIP, with probability p */
    float p;
};

struct ah_grid {
    int64_t channels, size[2];
    int count;
    struct ah_grid_step step[AH_GRID_STEPS];
    int64_t out[2], longest; /* by ah_grid_check: the result's size, the longest side on the way */
};

/* Work out the sizes; AH_EINVAL when a step does not fit. */
int ah_grid_check(struct ah_grid *grid);

/* Return the bytes of workspace that ah_grid_apply needs, aligned to 4. */
size_t ah_grid_scratch(const struct ah_grid *grid);

/* One image, channels after channels. The stream may be NULL when no step is random. */
void ah_grid_apply(const struct ah_grid *grid, const uint8_t *from, uint8_t *to, struct ah_stream *stream,
                   void *scratch);
