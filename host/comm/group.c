#include "comm/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/backend.h"
#include "comm/rank.h"

static const char *const kind_name[AH_COLLECTIVE_KINDS] = {
    [AH_ALL_REDUCE] = "all_reduce",
    [AH_ALL_REDUCE_START] = "all_reduce_async",
    [AH_BROADCAST] = "broadcast",
    [AH_ALL_GATHER] = "all_gather",
    [AH_ALL_GATHER_V] = "all_gather_ragged",
    [AH_REDUCE_SCATTER] = "reduce_scatter",
    [AH_GATHER] = "gather",
    [AH_SCATTER] = "scatter",
    [AH_ALL_TO_ALL] = "all_to_all",
    [AH_BARRIER] = "barrier",
};
static const char *const reduce_name[] = {"sum", "mean", "max", "min", "product"};

const char *ah_collective_name(int kind)
{
    return kind >= 0 && kind < AH_COLLECTIVE_KINDS ? kind_name[kind] : "collective";
}

const char *ah_post_describe(const struct ah_post *post, char *text, size_t bytes)
{
    char shape[160] = "", *at = shape, *end = shape + sizeof shape;
    if (post->kind == AH_BARRIER) {
        snprintf(text, bytes, "barrier");
        return text;
    }
    if (post->ndim < 0) {
        snprintf(shape, sizeof shape, "(%lld,)", (long long)post->count);
    } else {
        at += snprintf(at, (size_t)(end - at), "(");
        for (int d = 0; d < post->ndim && at < end; d++)
            at += snprintf(at, (size_t)(end - at), d ? ", %lld" : "%lld", (long long)post->size[d]);
        if (at < end)
            snprintf(at, (size_t)(end - at), post->ndim == 1 ? ",)" : ")");
    }
    char reduce[16] = "", root[24] = "";
    bool reduces = post->kind == AH_ALL_REDUCE || post->kind == AH_ALL_REDUCE_START || post->kind == AH_REDUCE_SCATTER;
    if (reduces && post->reduce != AH_REDUCE_SUM && post->reduce <= AH_REDUCE_PRODUCT)
        snprintf(reduce, sizeof reduce, "(%s)", reduce_name[post->reduce]);
    if (post->root > 0)
        snprintf(root, sizeof root, " root %d", post->root);
    snprintf(text, bytes, "%s%s %s %s%s", ah_collective_name(post->kind), reduce,
             post->dtype < AH_DTYPE_COUNT ? ah_dtype_name((enum ah_dtype)post->dtype) : "?", shape, root);
    return text;
}

/* Topology. */

static int read_integer(const char *name, int *out)
{
    const char *text = getenv(name);
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > 1 << 24)
        return ah_fail(AH_EINVAL, "%s: expected a number from 0, got '%s'", name, text);
    *out = (int)value;
    return 0;
}

/* The first family with a rank and a size wins. Slurm's variables alone mean a batch shell; a step has an id. */
static const struct family {
    const char *rank, *size, *local_rank, *local_size, *only_with;
} families[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID"},
};

int ah_topology_from_environment(struct ah_topology *out)
{
    *out = (struct ah_topology){0, 1, 0, 1};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        if (f->only_with && !getenv(f->only_with))
            continue;
        bool rank = getenv(f->rank), size = getenv(f->size);
        if (!rank && !size)
            continue;
        if (rank != size)
            return ah_fail(AH_EINVAL, "%s is set but %s is not", rank ? f->rank : f->size, rank ? f->size : f->rank);
        AH_TRY(read_integer(f->rank, &out->rank));
        AH_TRY(read_integer(f->size, &out->size));
        if (out->size < 1 || out->rank >= out->size)
            return ah_fail(AH_EINVAL, "%s is %d but %s is %d", f->rank, out->rank, f->size, out->size);
        out->local_rank = out->rank;
        out->local_size = out->size;
        if (f->local_rank && getenv(f->local_rank))
            AH_TRY(read_integer(f->local_rank, &out->local_rank));
        if (f->local_size && getenv(f->local_size))
            AH_TRY(read_integer(f->local_size, &out->local_size));
        if (out->local_size < 1 || out->local_size > out->size || out->local_rank >= out->local_size)
            return ah_fail(AH_EINVAL, "%s is %d with %d local ranks of %d", f->local_rank, out->local_rank,
                           out->local_size, out->size);
        return 0;
    }
    return 0;
}

/* The default group. */

static struct ah_group *default_group;

int ah_group_default(struct ah_group **out)
{
    if (!default_group) {
        struct ah_topology who;
        struct ah_board *board;
        AH_TRY(ah_topology_from_environment(&who));
        AH_TRY(ah_board_attach(&board));
        if (who.size > 1 && !board)
            return ah_fail(AH_EINVAL,
                           "this process is rank %d of %d, but has no board: start the job with 'accelhost launch "
                           "--num_processes %d SCRIPT'", who.rank, who.size, who.size);
        if (who.size != who.local_size)
            return ah_fail(AH_ENOTIMPL, "%d ranks with %d on this host: several hosts need the mpi backend",
                           who.size, who.local_size);
        if (who.size > 1)
            AH_TRY(ah_shm_open(&default_group, board, who.rank, 0));
        else
            AH_TRY(ah_self_open(&default_group));
    }
    *out = default_group;
    return 0;
}

void ah_group_close(struct ah_group *group)
{
    if (group)
        group->ops->close(group);
}

void ah_group_close_default(void)
{
    ah_group_close(default_group);
    default_group = NULL;
}

int ah_group_rank(const struct ah_group *group)
{
    return group->rank;
}

int ah_group_size(const struct ah_group *group)
{
    return group->size;
}

const char *ah_group_backend(const struct ah_group *group)
{
    return group->ops->name;
}

void ah_group_set_call_site(struct ah_group *group, const char *where)
{
    size_t length = strlen(where);
    /* The end of a long path says more than its beginning. */
    if (length >= sizeof group->where)
        where += length - (sizeof group->where - 1);
    snprintf(group->where, sizeof group->where, "%s", where);
}

void ah_group_set_shape(struct ah_group *group, const int64_t *size, int ndim)
{
    group->ndim = ndim > AH_BOARD_DIMS ? -1 : ndim;
    for (int d = 0; d < group->ndim; d++)
        group->shape[d] = size[d];
}

void ah_group_set_weight(struct ah_group *group, double weight)
{
    group->weight = weight;
}

void ah_group_set_note(struct ah_group *group, uint32_t note)
{
    group->note = note;
}

/* The door. */

/* What was told about the next collective holds for one. */
static void forget(struct ah_group *group)
{
    group->ndim = -1;
    group->weight = 1;
    group->note = 0;
}

static int poison(struct ah_group *group, int status)
{
    if (status < 0 && !group->poison) {
        group->poison = status;
        snprintf(group->poison_text, sizeof group->poison_text, "%s", ah_error_text());
        if (group->ops->poisoned)
            group->ops->poisoned(group);
    }
    return status;
}

static int check(struct ah_group *group, const struct ah_collective *what)
{
    const char *name = ah_collective_name(what->kind);
    if (group->poison)
        return ah_fail(group->poison, "%s: the group failed before: %s", name, group->poison_text);
    if (what->count < 0)
        return ah_fail(AH_EINVAL, "%s: expected a count from 0, got %lld", name, (long long)what->count);
    if (what->root >= group->size || (what->root < 0 && what->root != -1))
        return ah_fail(AH_EINVAL, "%s: expected a root in 0..%d, got %d", name, group->size - 1, what->root);
    if (what->dtype >= AH_DTYPE_COUNT)
        return ah_fail(AH_EINVAL, "%s: unknown dtype %d", name, (int)what->dtype);
    if (what->kind == AH_ALL_REDUCE || what->kind == AH_ALL_REDUCE_START || what->kind == AH_REDUCE_SCATTER) {
        if (what->reduce > AH_REDUCE_PRODUCT)
            return ah_fail(AH_EINVAL, "%s: unknown reduction %d", name, (int)what->reduce);
        if (what->reduce == AH_REDUCE_MEAN && !ah_dtype_is_float(what->dtype))
            return ah_fail(AH_EINVAL, "%s: mean needs a floating dtype, got %s", name, ah_dtype_name(what->dtype));
        if (what->dtype == AH_BOOL && what->reduce != AH_REDUCE_MAX && what->reduce != AH_REDUCE_MIN)
            return ah_fail(AH_EINVAL, "%s: bool has max and min only, got %s", name, reduce_name[what->reduce]);
    }
    return 0;
}

/* A wrong argument is this rank's error and does not poison: nothing was posted. */
static int run(struct ah_group *group, const struct ah_collective *what)
{
    AH_TRY(check(group, what));
    int status = poison(group, group->ops->run(group, what));
    forget(group);
    return status;
}

int ah_group_all_reduce(struct ah_group *group, void *buffer, int64_t count, enum ah_dtype dtype,
                        enum ah_reduce_op op)
{
    return run(group, &(struct ah_collective){.kind = AH_ALL_REDUCE, .dtype = dtype, .reduce = op, .root = -1,
                                              .count = count, .in = buffer, .out = buffer});
}

int ah_group_broadcast(struct ah_group *group, void *buffer, int64_t count, enum ah_dtype dtype, int root)
{
    return run(group, &(struct ah_collective){.kind = AH_BROADCAST, .dtype = dtype, .root = root, .count = count,
                                              .in = buffer, .out = buffer});
}

int ah_group_all_gather(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype)
{
    return run(group, &(struct ah_collective){.kind = AH_ALL_GATHER, .dtype = dtype, .root = -1, .count = count,
                                              .in = in, .out = out});
}

int ah_group_all_gather_v(struct ah_group *group, void *out, const void *in, const int64_t *counts,
                          enum ah_dtype dtype)
{
    for (int r = 0; r < group->size; r++)
        if (counts[r] < 0)
            return ah_fail(AH_EINVAL, "all_gather_ragged: expected counts from 0, got %lld of rank %d",
                           (long long)counts[r], r);
    return run(group, &(struct ah_collective){.kind = AH_ALL_GATHER_V, .dtype = dtype, .root = -1,
                                              .count = counts[group->rank], .in = in, .out = out, .counts = counts});
}

int ah_group_reduce_scatter(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype,
                            enum ah_reduce_op op)
{
    return run(group, &(struct ah_collective){.kind = AH_REDUCE_SCATTER, .dtype = dtype, .reduce = op, .root = -1,
                                              .count = count, .in = in, .out = out});
}

int ah_group_gather(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype, int root)
{
    return run(group, &(struct ah_collective){.kind = AH_GATHER, .dtype = dtype, .root = root, .count = count,
                                              .in = in, .out = out});
}

int ah_group_scatter(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype, int root)
{
    return run(group, &(struct ah_collective){.kind = AH_SCATTER, .dtype = dtype, .root = root, .count = count,
                                              .in = in, .out = out});
}

int ah_group_all_to_all(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype)
{
    return run(group, &(struct ah_collective){.kind = AH_ALL_TO_ALL, .dtype = dtype, .root = -1, .count = count,
                                              .in = in, .out = out});
}

int ah_group_barrier(struct ah_group *group)
{
    return run(group, &(struct ah_collective){.kind = AH_BARRIER, .dtype = AH_U8, .root = -1});
}

int ah_group_all_reduce_start(struct ah_group *group, void *buffer, int64_t count, enum ah_dtype dtype,
                              enum ah_reduce_op op, struct ah_work **out)
{
    struct ah_collective what = {.kind = AH_ALL_REDUCE_START, .dtype = dtype, .reduce = op, .root = -1,
                                 .count = count, .in = buffer, .out = buffer};
    AH_TRY(check(group, &what));
    int status = poison(group, group->ops->start(group, &what, out));
    forget(group);
    return status;
}

int ah_work_test(struct ah_work *work, bool *done)
{
    struct ah_group *group = work->group;
    if (group->poison)
        return ah_fail(group->poison, "%s: the group failed before: %s", ah_collective_name(work->what.kind),
                       group->poison_text);
    return poison(group, group->ops->test(work, done));
}

int ah_work_wait(struct ah_work *work)
{
    return ah_work_wait_note(work, &(uint32_t){0});
}

int ah_work_wait_note(struct ah_work *work, uint32_t *note)
{
    struct ah_group *group = work->group;
    int status = group->poison;
    if (status)
        ah_fail(status, "%s: the group failed before: %s", ah_collective_name(work->what.kind), group->poison_text);
    else
        status = poison(group, group->ops->wait(work));
    *note = work->note;
    group->ops->drop(work);
    return status;
}

void ah_work_abandon(struct ah_work *work)
{
    bool done = false;
    struct ah_group *group = work->group;
    /* One that is not complete stays: peers count on it, and on the memory it names. */
    if (group->poison || (poison(group, group->ops->test(work, &done)) == 0 && done))
        group->ops->drop(work);
}

int ah_group_arena_alloc(struct ah_group *group, size_t bytes, void **out)
{
    return group->ops->arena_alloc(group, bytes, out);
}
