/* Pooling of plain arrays: row-major planes for both real types, and maxima in channels-last order for float32 and, as
 * integers, halves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/nn/pool.h"

/* The elements that an output pixel averages. Adaptive: rectangles that share out the input. Else: the window's part
 * inside the input, divided by its size with or without the padding, or by a given number. */
struct ah_rectangles {
    bool adaptive, count_padding;
    int64_t divisor; /* 0: none given */
};

/* Report whether no two windows read the same position. */
bool ah_window_is_apart(const struct ah_window *s);

#define AH_POOL_PLANES(suffix, real)                                                                                \
    void ah_max_planes_##suffix(const struct ah_window *s, const real *x, real *y, int32_t *place);                 \
    void ah_max_planes_backward_##suffix(const struct ah_window *s, const real *g, const int32_t *place, real *gx); \
    void ah_mean_planes_##suffix(const struct ah_window *s, const struct ah_rectangles *r, const real *x, real *y); \
    void ah_mean_planes_backward_##suffix(const struct ah_window *s, const struct ah_rectangles *r, const real *g,  \
                                          real *gx);
AH_POOL_PLANES(f32, float)
AH_POOL_PLANES(f64, double)

#define AH_POOL_LAST(suffix, item)                                                                                   \
    void ah_max_last_##suffix(const struct ah_window *s, const item *x, item infinity, item *y, uint8_t *place,      \
                              item *rows);                                                                           \
    void ah_max_image_backward_##suffix(const struct ah_window *s, const item *g, const uint8_t *place, item *image); \
    void ah_max_last_backward_##suffix(const struct ah_window *s, const item *g, const uint8_t *place, item *gx);
AH_POOL_LAST(f32, float)
AH_POOL_LAST(16, int16_t)
