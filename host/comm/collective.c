/* What a call says of itself: its defaults, checks, fingerprint and text. Every backend gets its calls from here, so
 * that two ranks with the same script line have the same fingerprint whatever moves their data. */
#include "comm/collective.h"

#include <stdio.h>
#include <string.h>

#include "comm/board.h"

static const struct kind {
    const char *name, *async_name; /* async_name NULL: there is no asynchronous form */
    bool reduces;
} kinds[AH_COLLECTIVE_KINDS] = {
    [AH_ALL_REDUCE] = {"all_reduce", "all_reduce_async", true},
    [AH_BROADCAST] = {"broadcast", NULL, false},
    [AH_ALL_GATHER] = {"all_gather", "all_gather_async", false},
    [AH_ALL_GATHER_V] = {"all_gather_ragged", NULL, false},
    [AH_REDUCE_SCATTER] = {"reduce_scatter", "reduce_scatter_async", true},
    [AH_GATHER] = {"gather", NULL, false},
    [AH_SCATTER] = {"scatter", NULL, false},
    [AH_ALL_TO_ALL] = {"all_to_all", NULL, false},
    [AH_BARRIER] = {"barrier", NULL, false},
};
static const char *const reduce_name[] = {"sum", "mean", "max", "min", "product"};

/* Making one. */

static struct ah_collective make(enum ah_collective_kind kind, void *out, const void *in, int64_t count,
                                 enum ah_dtype dtype)
{
    return (struct ah_collective){.kind = kind, .dtype = dtype, .root = -1, .count = count, .in = in, .out = out,
                            .ndim = -1, .weight = 1, .where = "?"};
}

struct ah_collective ah_collective_all_reduce(void *buffer, int64_t count, enum ah_dtype dtype, enum ah_reduce_op op)
{
    struct ah_collective call = make(AH_ALL_REDUCE, buffer, buffer, count, dtype);
    call.reduce = op;
    return call;
}

struct ah_collective ah_collective_broadcast(void *buffer, int64_t count, enum ah_dtype dtype, int root)
{
    struct ah_collective call = make(AH_BROADCAST, buffer, buffer, count, dtype);
    call.root = root;
    return call;
}

struct ah_collective ah_collective_all_gather(void *out, const void *in, int64_t count, enum ah_dtype dtype)
{
    return make(AH_ALL_GATHER, out, in, count, dtype);
}

struct ah_collective ah_collective_all_gather_v(void *out, const void *in, const int64_t *counts, int rank,
                                                enum ah_dtype dtype)
{
    struct ah_collective call = make(AH_ALL_GATHER_V, out, in, counts[rank], dtype);
    call.counts = counts;
    return call;
}

struct ah_collective ah_collective_reduce_scatter(void *out, const void *in, int64_t count, enum ah_dtype dtype,
                                      enum ah_reduce_op op)
{
    struct ah_collective call = make(AH_REDUCE_SCATTER, out, in, count, dtype);
    call.reduce = op;
    return call;
}

struct ah_collective ah_collective_gather(void *out, const void *in, int64_t count, enum ah_dtype dtype, int root)
{
    struct ah_collective call = make(AH_GATHER, out, in, count, dtype);
    call.root = root;
    return call;
}

struct ah_collective ah_collective_scatter(void *out, const void *in, int64_t count, enum ah_dtype dtype, int root)
{
    struct ah_collective call = make(AH_SCATTER, out, in, count, dtype);
    call.root = root;
    return call;
}

struct ah_collective ah_collective_all_to_all(void *out, const void *in, int64_t count, enum ah_dtype dtype)
{
    return make(AH_ALL_TO_ALL, out, in, count, dtype);
}

struct ah_collective ah_collective_barrier(void)
{
    return make(AH_BARRIER, NULL, NULL, 0, AH_U8);
}

/* Names. */

const char *ah_collective_name(enum ah_collective_kind kind, bool async)
{
    if (kind >= AH_COLLECTIVE_KINDS)
        return "collective";
    return async && kinds[kind].async_name ? kinds[kind].async_name : kinds[kind].name;
}

bool ah_collective_reduces(const struct ah_collective *call)
{
    return kinds[call->kind].reduces;
}

const char *ah_reduce_name(enum ah_reduce_op op)
{
    return op <= AH_REDUCE_PRODUCT ? reduce_name[op] : "?";
}

/* Checks. */

static int check_reduction(const struct ah_collective *call, const char *name)
{
    if (call->reduce > AH_REDUCE_PRODUCT)
        return ah_fail(AH_EINVAL, "%s: unknown reduction %d", name, (int)call->reduce);
    if (call->reduce == AH_REDUCE_MEAN && !ah_dtype_is_float(call->dtype))
        return ah_fail(AH_EINVAL, "%s: mean needs a floating dtype, got %s", name, ah_dtype_name(call->dtype));
    if (call->dtype == AH_BOOL && call->reduce != AH_REDUCE_MAX && call->reduce != AH_REDUCE_MIN)
        return ah_fail(AH_EINVAL, "%s: bool has max and min only, got %s", name, reduce_name[call->reduce]);
    return 0;
}

int ah_collective_check(const struct ah_collective *call, int size)
{
    if (call->kind >= AH_COLLECTIVE_KINDS)
        return ah_fail(AH_EINVAL, "unknown collective %d", (int)call->kind);
    const char *name = ah_collective_name(call->kind, call->async);
    if (call->async && !kinds[call->kind].async_name)
        return ah_fail(AH_EINVAL, "%s: has no asynchronous form", name);
    for (int r = 0; call->counts && r < size; r++)
        if (call->counts[r] < 0)
            return ah_fail(AH_EINVAL, "%s: expected counts from 0, got %lld of rank %d", name,
                           (long long)call->counts[r], r);
    if (call->count < 0)
        return ah_fail(AH_EINVAL, "%s: expected a count from 0, got %lld", name, (long long)call->count);
    if (call->root >= size || (call->root < 0 && call->root != -1))
        return ah_fail(AH_EINVAL, "%s: expected a root in 0..%d, got %d", name, size - 1, call->root);
    if (call->dtype >= AH_DTYPE_COUNT)
        return ah_fail(AH_EINVAL, "%s: unknown dtype %d", name, (int)call->dtype);
    return kinds[call->kind].reduces ? check_reduction(call, name) : 0;
}

/* Posts. */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static void copy_where(char *to, const char *where)
{
    size_t length = strlen(where);
    /* The end of a long path says more than its beginning. */
    if (length >= AH_BOARD_WHERE)
        where += length - (AH_BOARD_WHERE - 1);
    snprintf(to, AH_BOARD_WHERE, "%s", where);
}

void ah_post_fill(struct ah_post *post, const struct ah_collective *call, uint32_t sequence, int size)
{
    int ndim = call->ndim > AH_BOARD_DIMS ? -1 : call->ndim;
    post->sequence = sequence;
    post->kind = (uint8_t)call->kind;
    post->async = call->async;
    post->dtype = (uint8_t)call->dtype;
    post->reduce = (uint8_t)call->reduce;
    post->ndim = (int8_t)ndim;
    post->root = call->root;
    post->note = call->note;
    post->weight = call->weight;
    post->count = call->count;
    copy_where(post->where, call->where);
    uint64_t hash = mix(sequence, (uint64_t)call->kind << 32 | (uint64_t)call->async << 31 |
                                      (uint64_t)call->dtype << 16 | (uint64_t)call->reduce);
    hash = mix(hash, (uint64_t)(int64_t)call->root);
    /* Ragged calls agree on all counts and on the trailing dims, others on the whole shape. */
    int skip = 0;
    if (call->counts) {
        for (int r = 0; r < size; r++)
            hash = mix(hash, (uint64_t)call->counts[r]);
        skip = 1;
    } else {
        hash = mix(hash, (uint64_t)call->count);
    }
    hash = mix(hash, (uint64_t)(ndim + 1));
    for (int d = 0; d < ndim; d++) {
        post->size[d] = call->size[d];
        if (d >= skip)
            hash = mix(hash, (uint64_t)call->size[d]);
    }
    post->hash = hash;
}

const char *ah_post_name(const struct ah_post *post)
{
    return ah_collective_name((enum ah_collective_kind)post->kind, post->async);
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
    if (post->kind < AH_COLLECTIVE_KINDS && kinds[post->kind].reduces && post->reduce != AH_REDUCE_SUM)
        snprintf(reduce, sizeof reduce, "(%s)", ah_reduce_name((enum ah_reduce_op)post->reduce));
    if (post->root > 0)
        snprintf(root, sizeof root, " root %d", post->root);
    snprintf(text, bytes, "%s%s %s %s%s", ah_post_name(post), reduce,
             post->dtype < AH_DTYPE_COUNT ? ah_dtype_name((enum ah_dtype)post->dtype) : "?", shape, root);
    return text;
}
