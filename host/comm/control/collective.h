/* A collective as its caller asks for it: one struct, made by one of the functions below and changed where the
 * defaults do not fit. Buffers are plain row-major memory; counts are elements. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/numeric/dtype.h"

struct ah_device;
struct ah_call_record;

enum ah_reduce_op {
    AH_REDUCE_SUM,
    AH_REDUCE_MEAN,
    AH_REDUCE_MAX,
    AH_REDUCE_MIN,
    AH_REDUCE_PRODUCT,
    AH_REDUCE_AND, /* of the bits, of integers and bool */
    AH_REDUCE_OR,
    AH_REDUCE_XOR,
    AH_REDUCE_OPS
};

enum ah_collective_kind {
    AH_ALL_REDUCE,
    AH_REDUCE,
    AH_BROADCAST,
    AH_ALL_GATHER,
    AH_ALL_GATHER_V,
    AH_REDUCE_SCATTER,
    AH_GATHER,
    AH_SCATTER,
    AH_ALL_TO_ALL,
    AH_ALL_TO_ALL_V,
    AH_BARRIER,
    AH_MONITORED_BARRIER,
    AH_COLLECTIVE_KINDS
};

/* The operation that a call is a part of, for messages: of a gather, the call that exchanges the sizes first. */
enum ah_purpose {
    AH_FOR_ITSELF,
    AH_FOR_GATHER,
    AH_FOR_BACKWARD,
    AH_FOR_PREPARE,
    AH_FOR_STEP,
    AH_FOR_DEVICE_COMM,
    AH_FOR_PARAMETERS,
    AH_PURPOSES
};

struct ah_collective {
    enum ah_collective_kind kind;
    enum ah_dtype dtype;
    enum ah_reduce_op reduce;
    int root; /* -1 for kinds without one */
    int64_t count;
    const void *in;
    void *out;
    const int64_t *counts; /* of the kinds that end in V: the same on every rank; copied by ah_group_start */
    bool async;            /* set by ah_group_start */
    /* The caller may change: */
    int ndim;            /* of the tensor, for the fingerprint and for messages; -1: not set */
    const int64_t *size; /* its shape */
    double weight;       /* of this rank in a mean, which divides the sum by the sum of all weights (0 counts as 1); the
                            buffer holds values already multiplied by it */
    uint32_t note;       /* bits for the peers: ah_work_wait_note returns the union over all ranks */
    int64_t timeout_ns;  /* of a blocking call; 0: the group's */
    bool ahead; /* of a work on a device: it may be queued there before the peers have issued it, since all ranks make
                   the same call; differences are found afterwards */
    struct ah_device *device; /* in whose memory the buffers are, with a communicator for the call; NULL: the host's */
    enum ah_purpose purpose;
    const char *where;   /* the script's line ("train.lua:12"); copied when the call is issued */
};

/* In place on every rank. Sums run in rank order on every element: same bits on every rank and in every run. MEAN is
 * sum / size unless weights are set. f32 f64 i64 i32 u8 (bool: max, min, bits); f16 and bf16 sum in f32. */
struct ah_collective ah_collective_all_reduce(void *buffer, int64_t count, enum ah_dtype dtype, enum ah_reduce_op op);
struct ah_collective ah_collective_broadcast(void *buffer, int64_t count, enum ah_dtype dtype, int root);
/* Each rank contributes `count` elements; out holds size * count, in rank order. */
struct ah_collective ah_collective_all_gather(void *out, const void *in, int64_t count, enum ah_dtype dtype);
/* Ragged: rank r contributes counts[r] elements; out holds their sum. `rank` is the caller's. */
struct ah_collective ah_collective_all_gather_v(void *out, const void *in, const int64_t *counts, int rank,
                                                enum ah_dtype dtype);
/* in holds size * count elements; out the reduced chunk of this rank. */
struct ah_collective ah_collective_reduce_scatter(void *out, const void *in, int64_t count, enum ah_dtype dtype,
                                      enum ah_reduce_op op);
struct ah_collective ah_collective_gather(void *out, const void *in, int64_t count, enum ah_dtype dtype, int root);
struct ah_collective ah_collective_scatter(void *out, const void *in, int64_t count, enum ah_dtype dtype, int root);
/* in and out hold size * count elements; chunk j of rank i goes to chunk i of rank j. */
struct ah_collective ah_collective_all_to_all(void *out, const void *in, int64_t count, enum ah_dtype dtype);
/* Ragged: counts[i * size + j] elements go from rank i to rank j, in rank order on both sides. */
struct ah_collective ah_collective_all_to_all_v(void *out, const void *in, const int64_t *counts, enum ah_dtype dtype);
/* As all_reduce, but only the root's `out` is written; the others' may be NULL. */
struct ah_collective ah_collective_reduce(void *out, const void *in, int64_t count, enum ah_dtype dtype,
                                          enum ah_reduce_op op, int root);
struct ah_collective ah_collective_barrier(void);
/* A barrier whose timeout names the first rank that is missing, or `all` of them. */
struct ah_collective ah_collective_monitored_barrier(int64_t timeout_ns, bool all);

/* The data that moves between two ranks, in elements: a part of the sender's input, and its offset in the receiver's
 * result (0 for kinds that reduce). Equal on every rank. */
struct ah_part {
    int64_t first, count, place;
};
struct ah_part ah_collective_part(const struct ah_collective *call, int size, int from, int to);
/* Return the part of a rank's input that no other rank reads. */
struct ah_part ah_collective_own(const struct ah_collective *call, int size, int rank);
/* Elements that a rank's input holds. */
int64_t ah_collective_input(const struct ah_collective *call, int size, int rank);
/* Is the input made of a part for each rank? */
bool ah_collective_splits(const struct ah_collective *call);
bool ah_collective_is_barrier(enum ah_collective_kind kind);

/* "all_reduce", "all_reduce_async" */
const char *ah_collective_name(enum ah_collective_kind kind, bool async);
bool ah_collective_reduces(const struct ah_collective *call);
const char *ah_reduce_name(enum ah_reduce_op op);

/* AH_EINVAL when an argument is wrong for a group of `size` ranks. */
int ah_collective_check(const struct ah_collective *call, int size);

/* Fill in the call record of a call, except the position of the buffer. The hash is equal on two ranks when they make
 * the same call at the same place of the sequence. */
void ah_call_record_fill(struct ah_call_record *record, const struct ah_collective *call, uint32_t sequence, int size);

/* "all_reduce(mean) float32 (10,)"; returns text. */
const char *ah_call_record_describe(const struct ah_call_record *record, char *text, size_t bytes);

/* "all_reduce" */
const char *ah_call_record_name(const struct ah_call_record *record);
