/* Group norm: the groups of channels of each sample are normalised, then scaled and shifted by channel. Row-major
 * inputs are read as planes (planes.h), a group at a time, so that all passes but the first read the cache; inputs in
 * channels-last order as rows of channels, a chunk of rows at a time. */
#include <math.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/reduce/norm_storage.h"
#include "cpu/reduce/planes.h"
#include "ops/dispatch/op.h"

enum {
    PIECES = 64,
    PIECE = 16384, /* items of a group whose moments are added up in one piece, at least */
    ROOMS = 5,
    SHORT = 128,   /* items of a plane below which a group is computed as one row */
};

struct group_job {
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
    void *each_w, *each_bias;     /* of each item of short planes of a sample, in the dtype that is computed in */
    double *sum_g, *sum_gx;       /* of each channel of each sample */
    struct ah_moments *part;      /* of each piece */
    struct ah_plane_gradient *factors; /* of each group */
    float *rooms;                 /* ROOMS rows of c factors for each thread */
    float *sums;                  /* two rows of c sums for each chunk */
};

static size_t group_at(const struct group_job *j, int64_t item)
{
    return (size_t)item * j->item;
}

static bool group_worth(const struct group_job *j)
{
    return ah_worth_threads(j->b.n * j->b.c * j->b.pixels, AH_SHARE_MIDDLE);
}

/* Are groups, not their planes, divided among threads? */
static bool group_whole(const struct group_job *j)
{
    return j->b.n * j->groups >= ah_num_threads();
}

static double group_weight(const struct group_job *j, int64_t channel)
{
    return j->w ? j->w[channel] : 1;
}

/* As the dtype of the statistics that are kept rounds them. */
static void group_keep(const struct group_job *j, int64_t i, double mean, double variance)
{
    double inverse = 1 / sqrt(variance + j->eps);
    bool single = ah_compute_dtype(j->dtype) == AH_F32;
    j->mean[i] = single ? (double)(float)mean : mean;
    j->inverse[i] = single ? (double)(float)inverse : inverse;
}

/* Call step(j, i, k) for k in [0, count): by all threads, or, without the cost of a region, by this one. */
typedef void (*group_step)(const struct group_job *j, int64_t i, int64_t k);

static void group_steps(const struct group_job *j, int64_t i, int64_t count, bool divided, group_step step)
{
    if (!divided) {
        for (int64_t k = 0; k < count; k++)
            step(j, i, k);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < count; k++)
        step(j, i, k);
}

/* A group's items in pieces, whose moments are added up: they depend on the number of items alone. */
static int64_t group_piece(const struct group_job *j)
{
    int64_t piece = (j->each * j->b.pixels + PIECES - 1) / PIECES;
    return piece < PIECE ? PIECE : piece;
}

static void group_piece_moments(const struct group_job *j, int64_t i, int64_t k)
{
    int64_t n = j->each * j->b.pixels, piece = group_piece(j), left = n - k * piece;
    j->part[i * j->pieces + k] =
        j->loops->moments(left < piece ? left : piece, j->x + group_at(j, i * n + k * piece));
}

static void group_plane_apply(const struct group_job *j, int64_t i, int64_t k)
{
    size_t at = group_at(j, (i * j->each + k) * j->b.pixels);
    int64_t channel = i % j->groups * j->each + k;
    j->loops->apply(j->b.pixels, j->x + at, j->mean[i], j->inverse[i] * group_weight(j, channel),
                                    j->bias ? j->bias[channel] : 0, j->y + at);
}

/* A group's part of the factors of each item. */
static const void *group_each(const struct group_job *j, const void *factors, int64_t i)
{
    size_t item = ah_dtype_size(ah_compute_dtype(j->dtype));
    return (const char *)factors + (size_t)(i % j->groups * j->each * j->b.pixels) * item;
}

static void group_forward(const struct group_job *j, int64_t i, bool divided)
{
    struct ah_moments m = {0};
    group_steps(j, i, j->pieces, divided, group_piece_moments);
    for (int64_t k = 0; k < j->pieces; k++)
        ah_moments_add(&m, j->part[i * j->pieces + k]);
    group_keep(j, i, m.mean, m.squares / m.count);
    size_t at = group_at(j, i * j->each * j->b.pixels);
    if (j->each_w)
        j->loops->apply_each(j->each * j->b.pixels, j->x + at, j->mean[i], j->inverse[i], group_each(j, j->each_w, i),
                             group_each(j, j->each_bias, i), j->y + at);
    else
        group_steps(j, i, j->each, divided, group_plane_apply);
}

/* The factors of a group's gradient, from the sums of g and g (x - mean) of its channels. */
static struct ah_plane_gradient group_factors(const struct group_job *j, int64_t i)
{
    double sum = 0, along = 0, count = (double)(j->each * j->b.pixels);
    for (int64_t k = 0; k < j->each; k++) {
        double w = group_weight(j, i % j->groups * j->each + k);
        sum += w * j->sum_g[i * j->each + k];
        along += w * j->sum_gx[i * j->each + k];
    }
    return (struct ah_plane_gradient){.sum = sum / count, .mean = j->mean[i], .inverse = j->inverse[i],
                                      .along = along * j->inverse[i] * j->inverse[i] / count};
}

static void group_plane_sums(const struct group_job *j, int64_t i, int64_t k)
{
    int64_t plane = i * j->each + k;
    size_t at = group_at(j, plane * j->b.pixels);
    double sum_g = 0, sum_gx = 0;
    j->loops->sums(j->b.pixels, j->g + at, j->x + at, j->mean[i], &sum_g, &sum_gx);
    j->sum_g[plane] = sum_g;
    j->sum_gx[plane] = sum_gx;
}

static void group_plane_combine(const struct group_job *j, int64_t i, int64_t k)
{
    size_t at = group_at(j, (i * j->each + k) * j->b.pixels);
    struct ah_plane_gradient f = j->factors[i];
    f.w = group_weight(j, i % j->groups * j->each + k);
    j->loops->combine(j->b.pixels, j->g + at, j->x + at, &f, j->gx + at);
}

static void group_backward(const struct group_job *j, int64_t i, bool divided)
{
    group_steps(j, i, j->each, divided, group_plane_sums);
    j->factors[i] = group_factors(j, i);
    size_t at = group_at(j, i * j->each * j->b.pixels);
    if (j->each_w)
        j->loops->combine_each(j->each * j->b.pixels, j->g + at, j->x + at, group_each(j, j->each_w, i),
                               &j->factors[i], j->gx + at);
    else
        group_steps(j, i, j->each, divided, group_plane_combine);
}

typedef void (*group_fn)(const struct group_job *j, int64_t i, bool divided);

static void groups_of_planes(const struct group_job *j, group_fn group)
{
    bool worth = group_worth(j), whole = group_whole(j);
#pragma omp parallel for schedule(static) if (worth && whole)
    for (int64_t i = 0; i < j->b.n * j->groups; i++)
        group(j, i, worth && !whole);
}

/* Channels-last. A chunk: the sample, its first row among all rows, its rows. */
struct group_chunk {
    int64_t sample, first, rows;
};

static struct group_chunk group_chunk_of(const struct group_job *j, int64_t i)
{
    int64_t sample = i / j->chunks, first = i % j->chunks * AH_NORM_CHUNK, left = j->b.pixels - first;
    return (struct group_chunk){sample, sample * j->b.pixels + first, left < AH_NORM_CHUNK ? left : AH_NORM_CHUNK};
}

static float *group_room(const struct group_job *j)
{
    return j->rooms + ah_thread_index() * ROOMS * j->b.c;
}

/* Set each channel's mean in a sample. */
static void group_spread(const struct group_job *j, int64_t sample, const double *of_groups, float *to)
{
    for (int64_t group = 0; group < j->groups; group++)
        for (int64_t k = 0; k < j->each; k++)
            to[group * j->each + k] = (float)of_groups[sample * j->groups + group];
}

/* The statistics of a group of a sample, from the sums and squares of its chunks. */
static void group_statistics(const struct group_job *j, int64_t sample, int64_t group)
{
    int64_t c = j->b.c, at = group * j->each;
    double total = 0, squares = 0, count = (double)(j->each * j->b.pixels);
    for (int64_t i = sample * j->chunks; i < (sample + 1) * j->chunks; i++) {
        const float *sums = j->sums + 2 * i * c + at;
#pragma omp simd reduction(+ : total)
        for (int64_t k = 0; k < j->each; k++)
            total += (double)sums[k];
    }
    double mean = total / count;
    for (int64_t i = sample * j->chunks; i < (sample + 1) * j->chunks; i++) {
        const float *sums = j->sums + 2 * i * c + at, *about = sums + c;
        double rows = (double)group_chunk_of(j, i).rows, part = 1 / rows;
#pragma omp simd reduction(+ : squares)
        for (int64_t k = 0; k < j->each; k++) {
            double off = (double)sums[k] * part - mean;
            squares += (double)about[k] + rows * off * off;
        }
    }
    group_keep(j, sample * j->groups + group, mean, squares / count);
}

static void groups_of_rows_forward(const struct group_job *j)
{
    const struct ah_row_loops *loops = ah_row_loops(j->dtype);
    int64_t c = j->b.c, chunks = j->b.n * j->chunks;
#pragma omp parallel for schedule(static) if (group_worth(j))
    for (int64_t i = 0; i < chunks; i++) {
        struct group_chunk chunk = group_chunk_of(j, i);
        loops->chunk_moments(j->x + group_at(j, chunk.first * c), chunk.rows, c, j->sums + 2 * i * c,
                             j->sums + (2 * i + 1) * c);
    }
#pragma omp parallel for schedule(static) if (group_worth(j))
    for (int64_t i = 0; i < j->b.n * j->groups; i++)
        group_statistics(j, i / j->groups, i % j->groups);
#pragma omp parallel for schedule(static) if (group_worth(j))
    for (int64_t i = 0; i < chunks; i++) {
        struct group_chunk chunk = group_chunk_of(j, i);
        float *mean = group_room(j), *scale = mean + c, *shift = scale + c;
        size_t at = group_at(j, chunk.first * c);
        group_spread(j, chunk.sample, j->mean, mean);
        group_spread(j, chunk.sample, j->inverse, scale);
        for (int64_t k = 0; k < c; k++) {
            scale[k] = (float)((double)scale[k] * group_weight(j, k));
            shift[k] = j->bias ? (float)j->bias[k] : 0;
        }
        loops->chunk_apply(j->x + at, chunk.rows, c, mean, scale, shift, j->y + at);
    }
}

/* Add up the sums of a sample's chunks, and set the factors of its groups. */
static void group_add_chunks(const struct group_job *j, int64_t sample)
{
    int64_t c = j->b.c;
    double *sum_g = j->sum_g + sample * c, *sum_gx = j->sum_gx + sample * c;
    for (int64_t k = 0; k < c; k++)
        sum_g[k] = sum_gx[k] = 0;
    for (int64_t i = sample * j->chunks; i < (sample + 1) * j->chunks; i++) {
        const float *g = j->sums + 2 * i * c, *gx = g + c;
        for (int64_t k = 0; k < c; k++) {
            sum_g[k] += (double)g[k];
            sum_gx[k] += (double)gx[k];
        }
    }
    for (int64_t i = sample * j->groups; i < (sample + 1) * j->groups; i++)
        j->factors[i] = group_factors(j, i);
}

static void group_chunk_backward(const struct group_job *j, struct group_chunk chunk)
{
    int64_t c = j->b.c;
    float *w = group_room(j), *sum = w + c, *mean = sum + c, *along = mean + c, *inverse = along + c;
    size_t at = group_at(j, chunk.first * c);
    for (int64_t group = 0; group < j->groups; group++) {
        const struct ah_plane_gradient f = j->factors[chunk.sample * j->groups + group];
        for (int64_t k = group * j->each; k < (group + 1) * j->each; k++) {
            w[k] = (float)group_weight(j, k);
            sum[k] = (float)f.sum;
            mean[k] = (float)f.mean;
            along[k] = (float)f.along;
            inverse[k] = (float)f.inverse;
        }
    }
    const struct ah_row_gradient f = {w, sum, mean, along, inverse};
    ah_row_loops(j->dtype)->chunk_combine(j->g + at, j->x + at, chunk.rows, c, &f, j->gx + at);
}

static void groups_of_rows_backward(const struct group_job *j)
{
    const struct ah_row_loops *loops = ah_row_loops(j->dtype);
    int64_t c = j->b.c, chunks = j->b.n * j->chunks;
#pragma omp parallel for schedule(static) if (group_worth(j))
    for (int64_t i = 0; i < chunks; i++) {
        struct group_chunk chunk = group_chunk_of(j, i);
        float *mean = group_room(j);
        size_t at = group_at(j, chunk.first * c);
        group_spread(j, chunk.sample, j->mean, mean);
        loops->chunk_sums(j->g + at, j->x + at, chunk.rows, c, mean, j->sums + 2 * i * c, j->sums + (2 * i + 1) * c);
    }
#pragma omp parallel for schedule(static) if (group_worth(j))
    for (int64_t sample = 0; sample < j->b.n; sample++)
        group_add_chunks(j, sample);
#pragma omp parallel for schedule(static) if (group_worth(j))
    for (int64_t i = 0; i < chunks; i++)
        group_chunk_backward(j, group_chunk_of(j, i));
}

/* The ops. */

static double *group_doubles(struct ah_arrays *a, struct ah_tensor *t)
{
    double *to = t ? ah_array_scratch(a, (size_t)t->numel * sizeof *to) : NULL;
    if (to)
        ah_cast(t->numel, to, AH_F64, 1, ah_tensor_data(t), t->dtype, t->ndim == 1 ? t->stride[0] : 1);
    return to;
}

/* Repeat the factors of channels, `missing` without, for each item of a sample's short planes. */
static void *group_spread_each(const struct group_job *j, struct ah_arrays *a, const double *factors, double missing)
{
    enum ah_dtype real = ah_compute_dtype(j->dtype);
    char *to = ah_array_scratch(a, (size_t)(j->b.c * j->b.pixels) * ah_dtype_size(real));
    for (int64_t k = 0; to && k < j->b.c; k++)
        ah_cast(j->b.pixels, to + (size_t)(k * j->b.pixels) * ah_dtype_size(real), real, 1,
                factors ? &factors[k] : &missing, AH_F64, 0);
    return to;
}

/* Are planes short, and are there samples among which their factors are shared? */
static bool group_is_short(const struct group_job *j, const struct ah_norm_storage *storage)
{
    return !storage->rows && j->b.pixels < SHORT && j->b.n > 1 && (j->w || j->bias);
}

/* Set sizes, and scratch for rows of channels. */
static void group_open(struct group_job *j, struct ah_arrays *a, const struct ah_tensor *x, int64_t groups,
                       bool affine, const struct ah_norm_storage *storage)
{
    j->b = ah_batch_of(x);
    if (!affine && !storage->rows) { /* a group is one plane */
        j->b.pixels *= j->b.c / groups;
        j->b.c = groups;
    }
    j->groups = groups;
    j->each = j->b.c / groups;
    j->dtype = storage->dtype;
    j->item = ah_dtype_size(j->dtype);
    j->loops = ah_plane_loops(j->dtype);
    j->pieces = (j->each * j->b.pixels + group_piece(j) - 1) / group_piece(j);
    if (!storage->rows)
        return;
    j->chunks = (j->b.pixels + AH_NORM_CHUNK - 1) / AH_NORM_CHUNK;
    j->rooms = ah_array_scratch(a, (size_t)(ah_num_threads() * ROOMS * j->b.c) * sizeof(float));
    j->sums = ah_array_scratch(a, (size_t)(2 * j->b.n * j->chunks * j->b.c) * sizeof(float));
}

int ah_cpu_group_norm(struct ah_call *c)
{
    const struct ah_args_group_norm *arg = ah_args(c, group_norm);
    struct ah_tensor *xt = arg->input.tensor, *mean = c->extra[0], *inverse = c->extra[1];
    struct ah_norm_storage storage = ah_norm_storage(xt, NULL);
    struct ah_arrays a = {0};
    struct group_job j = {.eps = arg->eps.number};
    group_open(&j, &a, xt, arg->num_groups.integer, ah_given(&arg->weight) || ah_given(&arg->bias), &storage);
    j.x = ah_norm_open(&a, xt, &storage);
    j.y = ah_norm_out_open(&a, c->out[0], &storage);
    j.w = group_doubles(&a, ah_given(&arg->weight));
    j.bias = group_doubles(&a, ah_given(&arg->bias));
    if (group_is_short(&j, &storage)) {
        j.each_w = group_spread_each(&j, &a, j.w, 1);
        j.each_bias = group_spread_each(&j, &a, j.bias, 0);
    }
    j.mean = ah_array_scratch(&a, (size_t)mean->numel * sizeof(double));
    j.inverse = ah_array_scratch(&a, (size_t)mean->numel * sizeof(double));
    j.part = storage.rows ? NULL : ah_array_scratch(&a, (size_t)(mean->numel * j.pieces) * sizeof *j.part);
    if (a.status < 0)
        return ah_arrays_close(&a);
    if (storage.rows)
        groups_of_rows_forward(&j);
    else
        groups_of_planes(&j, group_forward);
    ah_cast(mean->numel, ah_tensor_data(mean), mean->dtype, 1, j.mean, AH_F64, 1);
    ah_cast(mean->numel, ah_tensor_data(inverse), mean->dtype, 1, j.inverse, AH_F64, 1);
    c->out[0]->storage->channels_last = storage.last;
    return ah_arrays_close(&a);
}

/* The gradients of weight and bias, from the sums of each sample. */
static void group_affine(const struct group_job *j, struct ah_tensor *gw, struct ah_tensor *gb)
{
    int64_t c = j->b.c;
    for (int64_t n = 0; n < j->b.n; n++) {
        for (int64_t k = 0; k < c; k++) {
            double along = j->sum_gx[n * c + k] * j->inverse[n * j->groups + k / j->each];
            j->sum_gx[k] = n == 0 ? along : j->sum_gx[k] + along;
            j->sum_g[k] = n == 0 ? j->sum_g[k] : j->sum_g[k] + j->sum_g[n * c + k];
        }
    }
    ah_cast(c, ah_tensor_data(gw), gw->dtype, 1, j->sum_gx, AH_F64, 1);
    ah_cast(c, ah_tensor_data(gb), gb->dtype, 1, j->sum_g, AH_F64, 1);
}

int ah_cpu_group_norm_backward(struct ah_call *c)
{
    const struct ah_args_group_norm_backward *arg = ah_args(c, group_norm_backward);
    struct ah_tensor *gt = arg->grad.tensor, *xt = arg->input.tensor;
    struct ah_norm_storage storage = ah_norm_storage(xt, gt);
    struct ah_arrays a = {0};
    struct group_job j = {0};
    group_open(&j, &a, xt, arg->num_groups.integer, ah_given(&arg->weight) || arg->with_weight.flag, &storage);
    j.g = ah_norm_open(&a, gt, &storage);
    j.x = ah_norm_open(&a, xt, &storage);
    j.gx = ah_norm_out_open(&a, c->out[0], &storage);
    j.w = group_doubles(&a, ah_given(&arg->weight));
    if (group_is_short(&j, &storage))
        j.each_w = group_spread_each(&j, &a, j.w, 1);
    j.mean = group_doubles(&a, arg->mean.tensor);
    j.inverse = group_doubles(&a, arg->inverse.tensor);
    j.sum_g = ah_array_scratch(&a, (size_t)(2 * j.b.n * j.b.c) * sizeof(double));
    j.factors = ah_array_scratch(&a, (size_t)arg->mean.tensor->numel * sizeof *j.factors);
    if (a.status < 0)
        return ah_arrays_close(&a);
    j.sum_gx = j.sum_g + j.b.n * j.b.c;
    if (storage.rows)
        groups_of_rows_backward(&j);
    else
        groups_of_planes(&j, group_backward);
    if (arg->with_weight.flag)
        group_affine(&j, c->out[1], c->out[2]);
    c->out[0]->storage->channels_last = storage.last;
    return ah_arrays_close(&a);
}
