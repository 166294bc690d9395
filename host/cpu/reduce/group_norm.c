/* Group norm: the groups of channels of each sample are normalised, then scaled and shifted by channel. Row-major
 * inputs are read as planes (planes.h), a group or a block of small groups at a time, so that all passes but the first
 * read the cache; inputs in channels-last order as rows of channels (group_rows.c). */
#include <math.h>
#include <string.h>

#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/reduce/group_norm.h"
#include "cpu/reduce/norm_storage.h"
#include "ops/dispatch/op.h"

enum {
    PIECES = 64,
    PIECE = 16384, /* items of a group whose moments are added up in one piece, at least */
    SHORT = 128,   /* items of a plane below which a group is computed as one row */
    BLOCK = 4096,  /* items of a block of groups, */
    MOST = 64,     /* which has no more of these */
};

/* Are groups, not their planes, divided among threads? */
static bool group_whole(const struct ah_group_job *j)
{
    return j->b.n * j->groups >= ah_num_threads();
}

void ah_group_keep(const struct ah_group_job *j, int64_t first, int64_t end, double count)
{
    double eps = j->eps, *restrict mean = j->mean, *restrict inverse = j->inverse;
    for (int64_t i = first; i < end; i++)
        inverse[i] = 1 / sqrt(inverse[i] / count + eps);
    if (ah_compute_dtype(j->dtype) != AH_F32)
        return;
    for (int64_t i = first; i < end; i++) {
        mean[i] = (double)(float)mean[i];
        inverse[i] = (double)(float)inverse[i];
    }
}

/* Call step(j, i, k) for k in [0, count): by all threads, or, without the cost of a region, by this one. */
typedef void (*group_step)(const struct ah_group_job *j, int64_t i, int64_t k);

static void group_steps(const struct ah_group_job *j, int64_t i, int64_t count, bool divided, group_step step)
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
static int64_t group_piece(const struct ah_group_job *j)
{
    int64_t piece = (j->each * j->b.pixels + PIECES - 1) / PIECES;
    return piece < PIECE ? PIECE : piece;
}

static void group_piece_moments(const struct ah_group_job *j, int64_t i, int64_t k)
{
    int64_t n = j->each * j->b.pixels, piece = group_piece(j), left = n - k * piece;
    j->part[i * j->pieces + k] =
        j->loops->moments(left < piece ? left : piece, j->x + ah_group_at(j, i * n + k * piece));
}

static void group_plane_apply(const struct ah_group_job *j, int64_t i, int64_t k)
{
    size_t at = ah_group_at(j, (i * j->each + k) * j->b.pixels);
    int64_t channel = i % j->groups * j->each + k;
    j->loops->apply(j->b.pixels, j->x + at, j->mean[i], j->inverse[i] * ah_group_weight(j, channel),
                    j->bias ? j->bias[channel] : 0, j->y + at);
}

static void group_forward(const struct ah_group_job *j, int64_t i, bool divided)
{
    group_steps(j, i, j->pieces, divided, group_piece_moments);
    struct ah_moments m = j->part[i * j->pieces];
    for (int64_t k = 1; k < j->pieces; k++)
        ah_moments_add(&m, j->part[i * j->pieces + k]);
    j->mean[i] = m.mean;
    j->inverse[i] = m.squares;
    ah_group_keep(j, i, i + 1, m.count);
    group_steps(j, i, j->each, divided, group_plane_apply);
}

struct ah_plane_gradient ah_group_factors(const struct ah_group_job *j, int64_t i)
{
    double sum = 0, along = 0, count = (double)(j->each * j->b.pixels);
    for (int64_t k = 0; k < j->each; k++) {
        double w = ah_group_weight(j, i % j->groups * j->each + k);
        sum += w * j->sum_g[i * j->each + k];
        along += w * j->sum_gx[i * j->each + k];
    }
    return (struct ah_plane_gradient){.sum = sum / count, .mean = j->mean[i], .inverse = j->inverse[i],
                                      .along = along * j->inverse[i] * j->inverse[i] / count};
}

static void group_plane_sums(const struct ah_group_job *j, int64_t i, int64_t k)
{
    int64_t plane = i * j->each + k;
    size_t at = ah_group_at(j, plane * j->b.pixels);
    double sum_g = 0, sum_gx = 0;
    j->loops->sums(j->b.pixels, j->g + at, j->x + at, j->mean[i], &sum_g, &sum_gx);
    j->sum_g[plane] = sum_g;
    j->sum_gx[plane] = sum_gx;
}

static void group_plane_combine(const struct ah_group_job *j, int64_t i, int64_t k)
{
    size_t at = ah_group_at(j, (i * j->each + k) * j->b.pixels);
    struct ah_plane_gradient f = j->factors[i];
    f.w = ah_group_weight(j, i % j->groups * j->each + k);
    j->loops->combine(j->b.pixels, j->g + at, j->x + at, &f, j->gx + at);
}

static void group_backward(const struct ah_group_job *j, int64_t i, bool divided)
{
    group_steps(j, i, j->each, divided, group_plane_sums);
    j->factors[i] = ah_group_factors(j, i);
    group_steps(j, i, j->each, divided, group_plane_combine);
}

typedef void (*group_fn)(const struct ah_group_job *j, int64_t i, bool divided);

static void groups_of_planes(const struct ah_group_job *j, group_fn group)
{
    bool worth = ah_group_worth(j), whole = group_whole(j);
#pragma omp parallel for schedule(static) if (worth && whole)
    for (int64_t i = 0; i < j->b.n * j->groups; i++)
        group(j, i, worth && !whole);
}

/* Blocks of groups that are one plane, or whose planes are short. */

static bool group_in_blocks(const struct ah_group_job *j)
{
    return j->p.w || (!j->affine && j->pieces == 1 && group_whole(j));
}

/* The groups of a block, of at most `most`. */
static int64_t group_block(const struct ah_group_job *j, int64_t most)
{
    int64_t count = BLOCK / j->p.n;
    most = most < MOST ? most : MOST;
    return count > most ? most : count < 1 ? 1 : count;
}

typedef void (*group_block_fn)(const struct ah_group_job *j, int64_t first, int64_t end);

static void groups_of_blocks(const struct ah_group_job *j, group_block_fn run)
{
    int64_t all = j->b.n * j->groups, block = group_block(j, all);
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t i = 0; i < (all + block - 1) / block; i++)
        run(j, i * block, (i + 1) * block < all ? (i + 1) * block : all);
}

static void group_block_forward(const struct ah_group_job *j, int64_t first, int64_t end)
{
    j->loops->group_moments(&j->p, first, end, j->x);
    ah_group_keep(j, first, end, (double)j->p.n);
    j->loops->group_apply(&j->p, first, end, j->x, j->y);
}

/* Where the sums of each plane are needed, and where they are not. */
static void group_block_by_planes(const struct ah_group_job *j, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        for (int64_t k = 0; k < j->each; k++)
            group_plane_sums(j, i, k);
        j->factors[i] = ah_group_factors(j, i);
    }
    j->loops->group_combine(&j->p, first, end, j->g, j->x, j->factors + first, j->gx);
}

static void group_block_backward(const struct ah_group_job *j, int64_t first, int64_t end)
{
    struct ah_plane_gradient f[MOST];
    const double count = (double)j->p.n;
    j->loops->group_sums(&j->p, first, end, j->g, j->x, f);
    for (int64_t i = 0; i < end - first; i++) {
        f[i].sum /= count;
        f[i].along = f[i].along * f[i].inverse * f[i].inverse / count;
    }
    j->loops->group_combine(&j->p, first, end, j->g, j->x, f, j->gx);
}

static int64_t group_chunks_of_samples(const struct ah_group_job *j)
{
    return (j->b.n + AH_NORM_CHUNK - 1) / AH_NORM_CHUNK;
}

static size_t group_channels_size(const struct ah_group_job *j)
{
    return (size_t)(2 * group_chunks_of_samples(j) * j->b.c) * ah_dtype_size(ah_compute_dtype(j->dtype));
}

/* A block of the groups of a sample, in a chunk of samples, whose gradients of weight and bias are added up. */
static void group_chunk_of_samples(const struct ah_group_job *j, int64_t chunk, int64_t first, int64_t end)
{
    size_t row = (size_t)j->b.c * ah_dtype_size(ah_compute_dtype(j->dtype));
    char *gw = j->channels + 2 * (size_t)chunk * row;
    for (int64_t n = chunk * AH_NORM_CHUNK; n < (chunk + 1) * AH_NORM_CHUNK && n < j->b.n; n++) {
        int64_t at = n * j->groups;
        group_block_backward(j, at + first, at + end);
        j->loops->group_channels(&j->p, at + first, at + end, j->g, j->x, gw, gw + row);
    }
}

/* Planes of one item. */
static void groups_of_samples(const struct ah_group_job *j)
{
    int64_t block = group_block(j, j->groups), blocks = (j->groups + block - 1) / block;
    memset(j->channels, 0, group_channels_size(j));
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t i = 0; i < group_chunks_of_samples(j) * blocks; i++) {
        int64_t first = i % blocks * block, end = first + block;
        group_chunk_of_samples(j, i / blocks, first, end < j->groups ? end : j->groups);
    }
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
static const void *group_spread_each(const struct ah_group_job *j, struct ah_arrays *a, const double *factors,
                                     double missing)
{
    enum ah_dtype real = ah_compute_dtype(j->dtype);
    size_t plane = (size_t)j->b.pixels * ah_dtype_size(real);
    char *to = ah_array_scratch(a, (size_t)j->b.c * plane);
    if (to && j->b.pixels == 1)
        ah_cast(j->b.c, to, real, 1, factors ? factors : &missing, AH_F64, factors ? 1 : 0);
    for (int64_t k = 0; to && j->b.pixels > 1 && k < j->b.c; k++)
        ah_cast(j->b.pixels, to + (size_t)k * plane, real, 1, factors ? &factors[k] : &missing, AH_F64, 0);
    return to;
}

/* As batch norm reads it, but planes of one item are rows only in channels-last order. */
static struct ah_norm_storage group_storage(const struct ah_tensor *x, const struct ah_tensor *gradient)
{
    struct ah_norm_storage storage = ah_norm_storage(x, gradient);
    storage.rows = storage.last;
    return storage;
}

/* Set sizes, factors, and scratch for rows of channels. */
static void group_open(struct ah_group_job *j, struct ah_arrays *a, const struct ah_tensor *x, int64_t groups,
                       const struct ah_norm_storage *storage)
{
    j->b = ah_batch_of(x);
    if (!j->affine && !storage->rows) { /* a group is one plane */
        j->b.pixels *= j->b.c / groups;
        j->b.c = groups;
    }
    j->groups = groups;
    j->each = j->b.c / groups;
    j->dtype = storage->dtype;
    j->item = ah_dtype_size(j->dtype);
    j->loops = ah_plane_loops(j->dtype);
    j->p = (struct ah_plane_groups){j->each * j->b.pixels, groups, j->mean, j->inverse, NULL, NULL};
    j->pieces = (j->p.n + group_piece(j) - 1) / group_piece(j);
    bool shared = j->b.n > 1 || j->b.pixels == 1; /* are there samples that use the same factors? */
    if (j->affine && j->b.pixels < SHORT && shared && !storage->rows) {
        j->p.w = group_spread_each(j, a, j->w, 1);
        j->p.bias = group_spread_each(j, a, j->bias, 0);
    }
    if (!storage->rows)
        return;
    j->chunks = (j->b.pixels + AH_NORM_CHUNK - 1) / AH_NORM_CHUNK;
    j->rooms = ah_array_scratch(a, (size_t)(ah_num_threads() * AH_GROUP_ROOMS * j->b.c) * sizeof(float));
    j->sums = ah_array_scratch(a, (size_t)(2 * j->b.n * j->chunks * j->b.c) * sizeof(float));
}

int ah_cpu_group_norm(struct ah_call *c)
{
    const struct ah_args_group_norm *arg = ah_args(c, group_norm);
    struct ah_tensor *xt = arg->input.tensor, *mean = c->extra[0], *inverse = c->extra[1];
    struct ah_norm_storage storage = group_storage(xt, NULL);
    struct ah_arrays a = {0};
    struct ah_group_job j = {.eps = arg->eps.number, .affine = ah_given(&arg->weight) || ah_given(&arg->bias)};
    j.w = group_doubles(&a, ah_given(&arg->weight));
    j.bias = group_doubles(&a, ah_given(&arg->bias));
    j.mean = ah_array_scratch(&a, (size_t)mean->numel * sizeof(double));
    j.inverse = ah_array_scratch(&a, (size_t)mean->numel * sizeof(double));
    group_open(&j, &a, xt, arg->num_groups.integer, &storage);
    j.x = ah_norm_open(&a, xt, &storage);
    j.y = ah_norm_out_open(&a, c->out[0], &storage);
    bool blocks = !storage.rows && group_in_blocks(&j);
    if (!storage.rows && !blocks)
        j.part = ah_array_scratch(&a, (size_t)(mean->numel * j.pieces) * sizeof *j.part);
    if (a.status < 0)
        return ah_arrays_close(&a);
    if (storage.rows)
        ah_group_rows_forward(&j);
    else if (blocks)
        groups_of_blocks(&j, group_block_forward);
    else
        groups_of_planes(&j, group_forward);
    ah_cast(mean->numel, ah_tensor_data(mean), mean->dtype, 1, j.mean, AH_F64, 1);
    ah_cast(mean->numel, ah_tensor_data(inverse), mean->dtype, 1, j.inverse, AH_F64, 1);
    c->out[0]->storage->channels_last = storage.last;
    return ah_arrays_close(&a);
}

/* The gradients of weight and bias, from the sums of each sample. */
static void group_affine_of_planes(const struct ah_group_job *j)
{
    int64_t c = j->b.c;
    for (int64_t n = 0; n < j->b.n; n++) {
        for (int64_t k = 0; k < c; k++) {
            double along = j->sum_gx[n * c + k] * j->inverse[n * j->groups + k / j->each];
            j->sum_gx[k] = n == 0 ? along : j->sum_gx[k] + along;
            j->sum_g[k] = n == 0 ? j->sum_g[k] : j->sum_g[k] + j->sum_g[n * c + k];
        }
    }
}

/* The same from those of chunks of samples. */
static void group_affine_of_samples(const struct ah_group_job *j)
{
    int64_t c = j->b.c;
    enum ah_dtype real = ah_compute_dtype(j->dtype);
    for (int64_t k = 0; k < c; k++)
        j->sum_g[k] = j->sum_gx[k] = 0;
    for (int64_t i = 0; i < group_chunks_of_samples(j); i++) {
        const char *weight = j->channels + (size_t)(2 * i * c) * ah_dtype_size(real);
        const char *bias = weight + (size_t)c * ah_dtype_size(real);
        for (int64_t k = 0; k < c; k++) {
            j->sum_gx[k] += real == AH_F32 ? (double)((const float *)weight)[k] : ((const double *)weight)[k];
            j->sum_g[k] += real == AH_F32 ? (double)((const float *)bias)[k] : ((const double *)bias)[k];
        }
    }
}

/* Compute gradients of planes, those of weight and bias as sum_gx and sum_g of the first sample. */
static void groups_of_planes_backward(const struct ah_group_job *j, bool with_weight)
{
    if (!group_in_blocks(j))
        groups_of_planes(j, group_backward);
    else if (!with_weight)
        groups_of_blocks(j, group_block_backward);
    else if (j->b.pixels > 1)
        groups_of_blocks(j, group_block_by_planes);
    else
        groups_of_samples(j);
    if (with_weight && j->channels)
        group_affine_of_samples(j);
    else if (with_weight)
        group_affine_of_planes(j);
}

int ah_cpu_group_norm_backward(struct ah_call *c)
{
    const struct ah_args_group_norm_backward *arg = ah_args(c, group_norm_backward);
    struct ah_tensor *gt = arg->grad.tensor, *xt = arg->input.tensor;
    bool with_weight = arg->with_weight.flag;
    struct ah_norm_storage storage = group_storage(xt, gt);
    struct ah_arrays a = {0};
    struct ah_group_job j = {.affine = ah_given(&arg->weight) || with_weight};
    j.w = group_doubles(&a, ah_given(&arg->weight));
    j.mean = group_doubles(&a, arg->mean.tensor);
    j.inverse = group_doubles(&a, arg->inverse.tensor);
    group_open(&j, &a, xt, arg->num_groups.integer, &storage);
    j.g = ah_norm_open(&a, gt, &storage);
    j.x = ah_norm_open(&a, xt, &storage);
    j.gx = ah_norm_out_open(&a, c->out[0], &storage);
    bool samples = with_weight && j.b.pixels == 1 && !storage.rows;
    int64_t sums = j.b.c * (samples ? 1 : j.b.n);
    if (samples)
        j.channels = ah_array_scratch(&a, group_channels_size(&j));
    j.sum_g = ah_array_scratch(&a, (size_t)(2 * sums) * sizeof(double));
    j.factors = ah_array_scratch(&a, (size_t)arg->mean.tensor->numel * sizeof *j.factors);
    if (a.status < 0)
        return ah_arrays_close(&a);
    j.sum_gx = j.sum_g + sums;
    if (storage.rows)
        ah_group_rows_backward(&j);
    else
        groups_of_planes_backward(&j, with_weight);
    if (storage.rows && with_weight)
        group_affine_of_planes(&j);
    if (with_weight) {
        ah_cast(j.b.c, ah_tensor_data(c->out[1]), c->out[1]->dtype, 1, j.sum_gx, AH_F64, 1);
        ah_cast(j.b.c, ah_tensor_data(c->out[2]), c->out[2]->dtype, 1, j.sum_g, AH_F64, 1);
    }
    c->out[0]->storage->channels_last = storage.last;
    return ah_arrays_close(&a);
}
