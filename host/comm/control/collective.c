/* Properties of a call: its defaults, checks, fingerprint and text. Every backend gets its calls from here, so that two
 * ranks with the same script line have the same fingerprint with any backend. */
#include "comm/control/collective.h"

#include <stdio.h>
#include <string.h>

#include "base/status/status.h"
#include "comm/control/control_block.h"

static const struct kind {
    const char *name, *async_name;
    bool reduces, splits;
} collective_kinds[AH_COLLECTIVE_KINDS] = {
    [AH_ALL_REDUCE] = {"all_reduce", "all_reduce_async", true, false},
    [AH_REDUCE] = {"reduce", "reduce_async", true, false},
    [AH_BROADCAST] = {"broadcast", "broadcast_async", false, false},
    [AH_ALL_GATHER] = {"all_gather", "all_gather_async", false, false},
    [AH_ALL_GATHER_V] = {"all_gather_ragged", "all_gather_ragged_async", false, false},
    [AH_REDUCE_SCATTER] = {"reduce_scatter", "reduce_scatter_async", true, true},
    [AH_GATHER] = {"gather", "gather_async", false, false},
    [AH_SCATTER] = {"scatter", "scatter_async", false, true},
    [AH_ALL_TO_ALL] = {"all_to_all", "all_to_all_async", false, true},
    [AH_ALL_TO_ALL_V] = {"all_to_all_ragged", "all_to_all_ragged_async", false, true},
    [AH_BARRIER] = {"barrier", "barrier_async", false, false},
    [AH_MONITORED_BARRIER] = {"monitored_barrier", "monitored_barrier_async", false, false},
};
static const char *const reduce_name[AH_REDUCE_OPS] = {"sum", "mean", "max", "min", "product",
                                                      "and", "or", "xor"};

static const char *const purposes[AH_PURPOSES] = {"", " in gather", " in backward", " in prepare", " in optimizer:step",
                                            " to set up the collectives of a device", " of sharded parameters"};

/* Making one. */

static struct ah_collective collective_make(enum ah_collective_kind kind, void *out, const void *in, int64_t count,
                                            enum ah_dtype dtype)
{
    return (struct ah_collective){.kind = kind, .dtype = dtype, .root = -1, .count = count, .in = in, .out = out,
                            .ndim = -1, .weight = 1, .where = "?"};
}

struct ah_collective ah_collective_all_reduce(void *buffer, int64_t count, enum ah_dtype dtype, enum ah_reduce_op op)
{
    struct ah_collective call = collective_make(AH_ALL_REDUCE, buffer, buffer, count, dtype);
    call.reduce = op;
    return call;
}

struct ah_collective ah_collective_broadcast(void *buffer, int64_t count, enum ah_dtype dtype, int root)
{
    struct ah_collective call = collective_make(AH_BROADCAST, buffer, buffer, count, dtype);
    call.root = root;
    return call;
}

struct ah_collective ah_collective_all_gather(void *out, const void *in, int64_t count, enum ah_dtype dtype)
{
    return collective_make(AH_ALL_GATHER, out, in, count, dtype);
}

struct ah_collective ah_collective_all_gather_v(void *out, const void *in, const int64_t *counts, int rank,
                                                enum ah_dtype dtype)
{
    struct ah_collective call = collective_make(AH_ALL_GATHER_V, out, in, counts[rank], dtype);
    call.counts = counts;
    return call;
}

struct ah_collective ah_collective_reduce_scatter(void *out, const void *in, int64_t count, enum ah_dtype dtype,
                                      enum ah_reduce_op op)
{
    struct ah_collective call = collective_make(AH_REDUCE_SCATTER, out, in, count, dtype);
    call.reduce = op;
    return call;
}

struct ah_collective ah_collective_gather(void *out, const void *in, int64_t count, enum ah_dtype dtype, int root)
{
    struct ah_collective call = collective_make(AH_GATHER, out, in, count, dtype);
    call.root = root;
    return call;
}

struct ah_collective ah_collective_scatter(void *out, const void *in, int64_t count, enum ah_dtype dtype, int root)
{
    struct ah_collective call = collective_make(AH_SCATTER, out, in, count, dtype);
    call.root = root;
    return call;
}

struct ah_collective ah_collective_all_to_all(void *out, const void *in, int64_t count, enum ah_dtype dtype)
{
    return collective_make(AH_ALL_TO_ALL, out, in, count, dtype);
}

struct ah_collective ah_collective_all_to_all_v(void *out, const void *in, const int64_t *counts, enum ah_dtype dtype)
{
    struct ah_collective call = collective_make(AH_ALL_TO_ALL_V, out, in, 0, dtype);
    call.counts = counts;
    return call;
}

struct ah_collective ah_collective_reduce(void *out, const void *in, int64_t count, enum ah_dtype dtype,
                                          enum ah_reduce_op op, int root)
{
    struct ah_collective call = collective_make(AH_REDUCE, out, in, count, dtype);
    call.reduce = op;
    call.root = root;
    return call;
}

struct ah_collective ah_collective_barrier(void)
{
    return collective_make(AH_BARRIER, NULL, NULL, 0, AH_U8);
}

struct ah_collective ah_collective_monitored_barrier(int64_t timeout_ns, bool all)
{
    struct ah_collective call = collective_make(AH_MONITORED_BARRIER, NULL, NULL, 0, AH_U8);
    call.timeout_ns = timeout_ns;
    call.note = all;
    return call;
}

/* Parts. */

static int64_t sum_of(const int64_t *counts, int n, int stride)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i * stride];
    return sum;
}

struct ah_part ah_collective_part(const struct ah_collective *call, int size, int from, int to)
{
    struct ah_part part = {.count = call->count};
    switch (call->kind) {
    case AH_BROADCAST: part.count = from == call->root ? call->count : 0; break;
    case AH_REDUCE: part.count = to == call->root ? call->count : 0; break;
    case AH_GATHER:
        part.count = to == call->root ? call->count : 0;
        part.place = from * call->count;
        break;
    case AH_ALL_GATHER: part.place = from * call->count; break;
    case AH_ALL_GATHER_V:
        part.count = call->counts[from];
        part.place = sum_of(call->counts, from, 1);
        break;
    case AH_REDUCE_SCATTER: part.first = to * call->count; break;
    case AH_SCATTER:
        part.count = from == call->root ? call->count : 0;
        part.first = to * call->count;
        break;
    case AH_ALL_TO_ALL:
        part.first = to * call->count;
        part.place = from * call->count;
        break;
    case AH_ALL_TO_ALL_V:
        part.first = sum_of(call->counts + from * size, to, 1);
        part.count = call->counts[from * size + to];
        part.place = sum_of(call->counts + to, from, size);
        break;
    default: break;
    }
    return part;
}

struct ah_part ah_collective_own(const struct ah_collective *call, int size, int rank)
{
    bool one_takes = collective_kinds[call->kind].splits || call->kind == AH_REDUCE || call->kind == AH_GATHER;
    return one_takes ? ah_collective_part(call, size, rank, rank) : (struct ah_part){0};
}

int64_t ah_collective_input(const struct ah_collective *call, int size, int rank)
{
    switch (call->kind) {
    case AH_BROADCAST: return rank == call->root ? call->count : 0;
    case AH_SCATTER: return rank == call->root ? size * call->count : 0;
    case AH_ALL_GATHER_V: return call->counts[rank];
    case AH_ALL_TO_ALL_V: return sum_of(call->counts + rank * size, size, 1);
    default: return collective_kinds[call->kind].splits ? size * call->count : call->count;
    }
}

bool ah_collective_splits(const struct ah_collective *call)
{
    return collective_kinds[call->kind].splits;
}

bool ah_collective_is_barrier(enum ah_collective_kind kind)
{
    return kind == AH_BARRIER || kind == AH_MONITORED_BARRIER;
}

/* Names. */

const char *ah_collective_name(enum ah_collective_kind kind, bool async)
{
    if (kind >= AH_COLLECTIVE_KINDS)
        return "collective";
    return async ? collective_kinds[kind].async_name : collective_kinds[kind].name;
}

bool ah_collective_reduces(const struct ah_collective *call)
{
    return collective_kinds[call->kind].reduces;
}

const char *ah_reduce_name(enum ah_reduce_op op)
{
    return op < AH_REDUCE_OPS ? reduce_name[op] : "?";
}

/* Checks. */

static int check_reduction(const struct ah_collective *call, const char *name)
{
    if (call->reduce >= AH_REDUCE_OPS)
        return ah_fail(AH_EINVAL, "%s: unknown reduction %d", name, (int)call->reduce);
    if (!ah_dtype_computes(call->dtype))
        return ah_fail(AH_EINVAL, "%s: expected a dtype with arithmetic, got %s: convert it first, for instance "
                       "x:to \"int64\"", name, ah_dtype_name(call->dtype));
    if (call->reduce == AH_REDUCE_MEAN && !ah_dtype_is_float(call->dtype))
        return ah_fail(AH_EINVAL, "%s: mean needs a floating dtype, got %s", name, ah_dtype_name(call->dtype));
    bool bitwise = call->reduce >= AH_REDUCE_AND;
    if (bitwise && ah_dtype_is_float(call->dtype))
        return ah_fail(AH_EINVAL, "%s: %s needs an integer dtype or bool, got %s", name, reduce_name[call->reduce],
                       ah_dtype_name(call->dtype));
    if (call->dtype == AH_BOOL && !bitwise && call->reduce != AH_REDUCE_MAX && call->reduce != AH_REDUCE_MIN)
        return ah_fail(AH_EINVAL, "%s: bool has max, min, and, or and xor only, got %s", name,
                       reduce_name[call->reduce]);
    return 0;
}

static int check_counts(const struct ah_collective *call, int size, const char *name)
{
    int n = call->kind == AH_ALL_TO_ALL_V ? size * size : size;
    for (int r = 0; call->counts && r < n; r++)
        if (call->counts[r] < 0)
            return ah_fail(AH_EINVAL, "%s: expected counts from 0, got %lld of rank %d", name,
                           (long long)call->counts[r], r % size);
    return 0;
}

int ah_collective_check(const struct ah_collective *call, int size)
{
    if (call->kind >= AH_COLLECTIVE_KINDS)
        return ah_fail(AH_EINVAL, "unknown collective %d", (int)call->kind);
    const char *name = ah_collective_name(call->kind, call->async);
    AH_TRY(check_counts(call, size, name));
    if (call->count < 0)
        return ah_fail(AH_EINVAL, "%s: expected a count from 0, got %lld", name, (long long)call->count);
    if (call->root >= size || (call->root < 0 && call->root != -1))
        return ah_fail(AH_EINVAL, "%s: expected a root in 0..%d, got %d", name, size - 1, call->root);
    if (call->dtype >= AH_DTYPE_COUNT)
        return ah_fail(AH_EINVAL, "%s: unknown dtype %d", name, (int)call->dtype);
    return collective_kinds[call->kind].reduces ? check_reduction(call, name) : 0;
}

/* Posts. */

static uint64_t collective_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static void copy_where(char *to, const char *where)
{
    size_t length = strlen(where);
    /* The end of a long path is more specific than its beginning. */
    if (length >= AH_CALL_WHERE)
        where += length - (AH_CALL_WHERE - 1);
    snprintf(to, AH_CALL_WHERE, "%s", where);
}

void ah_call_record_fill(struct ah_call_record *record, const struct ah_collective *call, uint32_t sequence, int size)
{
    int ndim = call->ndim > AH_CALL_DIMS ? -1 : call->ndim;
    record->sequence = sequence;
    record->kind = (uint8_t)call->kind;
    record->async = call->async;
    record->purpose = (uint8_t)call->purpose;
    record->far = call->device != NULL;
    record->dtype = (uint8_t)call->dtype;
    record->reduce = (uint8_t)call->reduce;
    record->ndim = (int8_t)ndim;
    record->root = call->root;
    record->note = call->note;
    record->weight = call->weight;
    record->count = call->count;
    copy_where(record->where, call->where);
    uint64_t hash = collective_mix(sequence, (uint64_t)call->kind << 32 | (uint64_t)call->async << 31 |
                                                 (uint64_t)record->far << 30 | (uint64_t)call->dtype << 16 |
                                                 (uint64_t)call->reduce);
    hash = collective_mix(hash, (uint64_t)(int64_t)call->root);
    /* Ragged calls agree on all counts and on the trailing dims, others on the whole shape. */
    int skip = 0;
    if (call->counts) {
        for (int r = 0; r < (call->kind == AH_ALL_TO_ALL_V ? size * size : size); r++)
            hash = collective_mix(hash, (uint64_t)call->counts[r]);
        skip = 1;
    } else {
        hash = collective_mix(hash, (uint64_t)call->count);
    }
    hash = collective_mix(hash, (uint64_t)(ndim + 1));
    for (int d = 0; d < ndim; d++) {
        record->size[d] = call->size[d];
        if (d >= skip)
            hash = collective_mix(hash, (uint64_t)call->size[d]);
    }
    record->hash = hash;
}

const char *ah_call_record_name(const struct ah_call_record *record)
{
    return ah_collective_name((enum ah_collective_kind)record->kind, record->async);
}

const char *ah_call_record_describe(const struct ah_call_record *record, char *text, size_t bytes)
{
    char shape[160] = "", *at = shape, *end = shape + sizeof shape;
    const char *purpose = record->purpose < AH_PURPOSES ? purposes[record->purpose] : "";
    if (ah_collective_is_barrier((enum ah_collective_kind)record->kind)) {
        snprintf(text, bytes, "%s%s", ah_call_record_name(record), purpose);
        return text;
    }
    if (record->ndim < 0) {
        snprintf(shape, sizeof shape, "(%lld,)", (long long)record->count);
    } else {
        at += snprintf(at, (size_t)(end - at), "(");
        for (int d = 0; d < record->ndim && at < end; d++)
            at += snprintf(at, (size_t)(end - at), d ? ", %lld" : "%lld", (long long)record->size[d]);
        if (at < end)
            snprintf(at, (size_t)(end - at), record->ndim == 1 ? ",)" : ")");
    }
    char reduce[16] = "", root[24] = "";
    if (record->kind < AH_COLLECTIVE_KINDS && collective_kinds[record->kind].reduces && record->reduce != AH_REDUCE_SUM)
        snprintf(reduce, sizeof reduce, "(%s)", ah_reduce_name((enum ah_reduce_op)record->reduce));
    if (record->root > 0)
        snprintf(root, sizeof root, " root %d", record->root);
    snprintf(text, bytes, "%s%s %s %s%s%s%s", ah_call_record_name(record), reduce,
             record->dtype < AH_DTYPE_COUNT ? ah_dtype_name((enum ah_dtype)record->dtype) : "?", shape, root,
             record->far ? " on a device" : "", purpose);
    return text;
}
