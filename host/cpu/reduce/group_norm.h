/* A group norm or its gradient, of planes (group_norm.c) or of rows of channels (group_rows.c).
 *
 * Circle: group_norm, group_rows: the ops call the loops over rows, which keep statistics as those over planes do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/process/parallel.h"
#include "cpu/reduce/norm.h"
#include "cpu/reduce/planes.h"

enum { AH_GROUP_ROOMS = 5 };

struct ah_group_job {
    struct ah_batch b;
    int64_t groups, each;         /* channels of a group */
    int64_t pieces, chunks;       /* of a group's items; of a sample's rows */
    enum ah_dtype dtype;          /* of x, y, g and gx */
    size_t item;                  /* its bytes */
    const struct ah_plane_loops *loops;
    const char *x, *g;
    char *y, *gx;
    double eps;
    double *mean, *inverse;       /* of the n groups */
    double *w, *bias;             /* of each channel, or NULL */
    bool affine;
    struct ah_plane_groups p;     /* with factors where planes are short */
    char *channels;               /* of each chunk of samples: gradients of weight and of bias */
    double *sum_g, *sum_gx;       /* of each channel of each sample */
    struct ah_moments *part;      /* of each piece */
    struct ah_plane_gradient *factors; /* of each group */
    float *rooms;                 /* AH_GROUP_ROOMS rows of c factors for each thread */
    float *sums;                  /* two rows of c sums for each chunk */
};

static inline size_t ah_group_at(const struct ah_group_job *j, int64_t item)
{
    return (size_t)item * j->item;
}

static inline bool ah_group_worth(const struct ah_group_job *j)
{
    return ah_worth_threads(j->b.n * j->b.c * j->b.pixels, AH_SHARE_MIDDLE);
}

static inline double ah_group_weight(const struct ah_group_job *j, int64_t channel)
{
    return j->w ? j->w[channel] : 1;
}

/* Replace the sums of squares of groups by 1 / deviation, and round both statistics as the dtype does that keeps
 * them. */
void ah_group_keep(const struct ah_group_job *j, int64_t first, int64_t end, double count);

/* Return the factors of a group's gradient, from the sums of g and g (x - mean) of its channels. */
struct ah_plane_gradient ah_group_factors(const struct ah_group_job *j, int64_t i);

/* Channels-last order. */
void ah_group_rows_forward(const struct ah_group_job *j);
void ah_group_rows_backward(const struct ah_group_job *j);
