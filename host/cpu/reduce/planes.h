/* Loops over planes, which are runs of items of one channel: sums in chunks of fixed size, so that the result of a
 * plane depends on its items alone, and has the same bits for bfloat16, float16 and their numbers in float32. */
#pragma once

#include <stdint.h>

#include "base/numeric/dtype.h"

/* Moments of numbers that are added up: their mean and the sum of their squares about it. */
struct ah_moments {
    double count, mean, squares;
};

/* Add the moments of other numbers (Chan, Golub and LeVeque, 1979). */
static inline void ah_moments_add(struct ah_moments *m, struct ah_moments other)
{
    double count = m->count + other.count, off = other.mean - m->mean;
    if (count > 0) {
        m->squares += other.squares + off * off * m->count * other.count / count;
        m->mean += off * other.count / count;
        m->count = count;
    }
}

/* The gradient of a normalised plane: gx = (w g - sum - (x - mean) along) inverse. */
struct ah_plane_gradient {
    double w, sum, mean, along, inverse;
};

struct ah_plane_loops {
    struct ah_moments (*moments)(int64_t n, const void *x);
    /* y = (x - mean) scale + shift. */
    void (*apply)(int64_t n, const void *x, double mean, double scale, double shift, void *y);
    /* Add up g and g (x - mean). */
    void (*sums)(int64_t n, const void *g, const void *x, double mean, double *sum_g, double *sum_gx);
    void (*combine)(int64_t n, const void *g, const void *x, const struct ah_plane_gradient *f, void *gx);
    /* Planes in a row, each item with its own w and bias, which are in the dtype that is computed in:
     * y = (x - mean) inverse w + bias, and the gradient. */
    void (*apply_each)(int64_t n, const void *x, double mean, double inverse, const void *w, const void *bias,
                       void *y);
    void (*combine_each)(int64_t n, const void *g, const void *x, const void *w, const struct ah_plane_gradient *f,
                         void *gx);
};

/* Return the loops for items of a floating dtype; halves are computed in float32. */
const struct ah_plane_loops *ah_plane_loops(enum ah_dtype dtype);
