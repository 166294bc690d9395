/* Sampling of row-major images and volumes, for both real types. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { AH_SAMPLE_BLOCK = 128 }; /* locations whose tables fit the first cache */

enum ah_sample_mode { AH_SAMPLE_BILINEAR, AH_SAMPLE_NEAREST, AH_SAMPLE_BICUBIC };
enum ah_sample_padding { AH_PADDING_ZEROS, AH_PADDING_BORDER, AH_PADDING_REFLECTION };

struct ah_sampling {
    enum ah_sample_mode mode;
    enum ah_sample_padding padding;
    bool align_corners;
    int space;         /* dims of it */
    int taps, corners; /* input positions along an axis, and of a location */
    int64_t n, c, size[3], volume, pixels; /* pixels: locations of a sample */
    int64_t group;                         /* locations whose tables are made before the channels are read */
};

struct ah_sample_room {
    int32_t *at;
    void *weight; /* and behind them, for gradients, the slopes */
};

/* Read x at the locations of the grid; add gradients to those of x and write those of the grid. */
#define AH_SAMPLE_LOOPS(suffix, real)                                                                               \
    void ah_sample_read_##suffix(const struct ah_sampling *s, const real *x, const real *grid, real *y,             \
                                 struct ah_sample_room *room);                                                    \
    void ah_sample_add_##suffix(const struct ah_sampling *s, const void *g, const void *x, const void *grid,        \
                                void *gx, void *ggrid, struct ah_sample_room *room);
AH_SAMPLE_LOOPS(f32, float)
AH_SAMPLE_LOOPS(f64, double)
