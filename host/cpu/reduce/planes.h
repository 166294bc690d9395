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

/* Planes of n items in a row, `groups` of a sample, whose items are scaled and shifted by the factors of their place
 * in it: of the dtype that is computed in, NULL where a group is only normalised. `mean` and `inverse` are of each
 * group. */
struct ah_plane_groups {
    int64_t n, groups;
    double *mean, *inverse;
    const void *w, *bias;
};

struct ah_plane_loops {
    struct ah_moments (*moments)(int64_t n, const void *x);
    /* y = (x - mean) scale + shift. */
    void (*apply)(int64_t n, const void *x, double mean, double scale, double shift, void *y);
    /* Add up g and g (x - mean). */
    void (*sums)(int64_t n, const void *g, const void *x, double mean, double *sum_g, double *sum_gx);
    void (*combine)(int64_t n, const void *g, const void *x, const struct ah_plane_gradient *f, void *gx);
    /* Groups in a row, from the first up to the end; `f` is that of the first. Set mean and, in place of `inverse`, the
     * sum of squares about it; normalise; set the sums of w g and w g (x - mean) as `sum` and `along`; the gradient;
     * add up the gradients of each item's w and bias. */
    void (*group_moments)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *x);
    void (*group_apply)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *x, void *y);
    void (*group_sums)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *g, const void *x,
                       struct ah_plane_gradient *f);
    void (*group_combine)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *g, const void *x,
                          const struct ah_plane_gradient *f, void *gx);
    void (*group_channels)(const struct ah_plane_groups *p, int64_t first, int64_t end, const void *g, const void *x,
                           void *weight, void *bias);
};

/* Return the loops for items of a floating dtype; halves are computed in float32. */
const struct ah_plane_loops *ah_plane_loops(enum ah_dtype dtype);
