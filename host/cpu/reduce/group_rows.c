/* Group norm of inputs in channels-last order: rows of channels, a chunk of them at a time, whose sums are added up in
 * order. */
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "cpu/reduce/group_norm.h"

/* A chunk: the sample, its first row among all rows, its rows. */
struct group_chunk {
    int64_t sample, first, rows;
};

static struct group_chunk group_chunk_of(const struct ah_group_job *j, int64_t i)
{
    int64_t sample = i / j->chunks, first = i % j->chunks * AH_NORM_CHUNK, left = j->b.pixels - first;
    return (struct group_chunk){sample, sample * j->b.pixels + first, left < AH_NORM_CHUNK ? left : AH_NORM_CHUNK};
}

static float *group_room(const struct ah_group_job *j)
{
    return j->rooms + ah_thread_index() * AH_GROUP_ROOMS * j->b.c;
}

/* Set each channel's mean in a sample. */
static void group_spread(const struct ah_group_job *j, int64_t sample, const double *of_groups, float *to)
{
    for (int64_t group = 0; group < j->groups; group++)
        for (int64_t k = 0; k < j->each; k++)
            to[group * j->each + k] = (float)of_groups[sample * j->groups + group];
}

/* The statistics of a group of a sample, from the sums and squares of its chunks. */
static void group_statistics(const struct ah_group_job *j, int64_t sample, int64_t group)
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
    int64_t i = sample * j->groups + group;
    j->mean[i] = mean;
    j->inverse[i] = squares;
    ah_group_keep(j, i, i + 1, count);
}

void ah_group_rows_forward(const struct ah_group_job *j)
{
    const struct ah_row_loops *loops = ah_row_loops(j->dtype);
    int64_t c = j->b.c, chunks = j->b.n * j->chunks;
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t i = 0; i < chunks; i++) {
        struct group_chunk chunk = group_chunk_of(j, i);
        loops->chunk_moments(j->x + ah_group_at(j, chunk.first * c), chunk.rows, c, j->sums + 2 * i * c,
                             j->sums + (2 * i + 1) * c);
    }
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t i = 0; i < j->b.n * j->groups; i++)
        group_statistics(j, i / j->groups, i % j->groups);
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t i = 0; i < chunks; i++) {
        struct group_chunk chunk = group_chunk_of(j, i);
        float *mean = group_room(j), *scale = mean + c, *shift = scale + c;
        size_t at = ah_group_at(j, chunk.first * c);
        group_spread(j, chunk.sample, j->mean, mean);
        group_spread(j, chunk.sample, j->inverse, scale);
        for (int64_t k = 0; k < c; k++) {
            scale[k] = (float)((double)scale[k] * ah_group_weight(j, k));
            shift[k] = j->bias ? (float)j->bias[k] : 0;
        }
        loops->chunk_apply(j->x + at, chunk.rows, c, mean, scale, shift, j->y + at);
    }
}

/* Add up the sums of a sample's chunks, and set the factors of its groups. */
static void group_add_chunks(const struct ah_group_job *j, int64_t sample)
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
        j->factors[i] = ah_group_factors(j, i);
}

static void group_chunk_backward(const struct ah_group_job *j, struct group_chunk chunk)
{
    int64_t c = j->b.c;
    float *w = group_room(j), *sum = w + c, *mean = sum + c, *along = mean + c, *inverse = along + c;
    size_t at = ah_group_at(j, chunk.first * c);
    for (int64_t group = 0; group < j->groups; group++) {
        const struct ah_plane_gradient f = j->factors[chunk.sample * j->groups + group];
        for (int64_t k = group * j->each; k < (group + 1) * j->each; k++) {
            w[k] = (float)ah_group_weight(j, k);
            sum[k] = (float)f.sum;
            mean[k] = (float)f.mean;
            along[k] = (float)f.along;
            inverse[k] = (float)f.inverse;
        }
    }
    const struct ah_row_gradient f = {w, sum, mean, along, inverse};
    ah_row_loops(j->dtype)->chunk_combine(j->g + at, j->x + at, chunk.rows, c, &f, j->gx + at);
}

void ah_group_rows_backward(const struct ah_group_job *j)
{
    const struct ah_row_loops *loops = ah_row_loops(j->dtype);
    int64_t c = j->b.c, chunks = j->b.n * j->chunks;
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t i = 0; i < chunks; i++) {
        struct group_chunk chunk = group_chunk_of(j, i);
        float *mean = group_room(j);
        size_t at = ah_group_at(j, chunk.first * c);
        group_spread(j, chunk.sample, j->mean, mean);
        loops->chunk_sums(j->g + at, j->x + at, chunk.rows, c, mean, j->sums + 2 * i * c, j->sums + (2 * i + 1) * c);
    }
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t sample = 0; sample < j->b.n; sample++)
        group_add_chunks(j, sample);
#pragma omp parallel for schedule(static) if (ah_group_worth(j))
    for (int64_t i = 0; i < chunks; i++)
        group_chunk_backward(j, group_chunk_of(j, i));
}

