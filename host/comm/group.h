/* Process groups: collectives behind one interface.
 *
 * A backend fills struct ah_group_ops; callers use the ah_group_* functions, the one door where arguments are
 * checked, the call is fingerprinted on the job's board and mismatches, dead peers and timeouts become errors. All
 * calls are made by the Lua thread. Buffers are plain row-major memory; counts are elements. Every function returns
 * 0 or a negative status (AH_EPEER, AH_EMISMATCH, AH_ETIMEOUT, AH_EINVAL ...); any failure of a collective poisons
 * the group: later calls fail with the first error's text. */
#ifndef AH_COMM_GROUP_H
#define AH_COMM_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

enum ah_reduce_op { AH_REDUCE_SUM, AH_REDUCE_MEAN, AH_REDUCE_MAX, AH_REDUCE_MIN, AH_REDUCE_PRODUCT };

struct ah_group;
struct ah_work; /* an asynchronous collective under way */

/* Who this process is, from the environment (RANK, LOCAL_RANK, WORLD_SIZE, ... as the launcher sets them; absent:
 * rank 0 of 1). AH_EINVAL when the variables contradict each other. */
struct ah_topology {
    int rank, size, local_rank, local_size;
};
int ah_topology_from_environment(struct ah_topology *out);

/* The job's default group: `self` for one process, `shm` when the launcher handed us a board. One per process,
 * opened on first use; the pointer stays valid until ah_group_close_default (no communication, called at exit). */
int ah_group_default(struct ah_group **out);
void ah_group_close_default(void);

/* Ranks count from 0. */
int ah_group_rank(const struct ah_group *group);
int ah_group_size(const struct ah_group *group);
const char *ah_group_backend(const struct ah_group *group); /* "self", "shm" */

/* Where the next collective is called from ("train.lua:12"), reported on a mismatch. Copied. */
void ah_group_set_call_site(struct ah_group *group, const char *where);

/* The shape of the next collective's tensor, for the fingerprint and for messages; optional (ndim -1 clears). */
void ah_group_set_shape(struct ah_group *group, const int64_t *size, int ndim);

/* This rank's weight in the next mean, which divides the sum by the sum of all ranks' weights (1 unless told; a total
 * of 0 divides by 1). The buffer holds values already multiplied by it. */
void ah_group_set_weight(struct ah_group *group, double weight);

/* Bits that travel with the next all_reduce_start; ah_work_wait_note gives the union over all ranks. */
void ah_group_set_note(struct ah_group *group, uint32_t note);

/* In place on every rank. Sums run in rank order on every element: same bits on every rank and in every run. MEAN is
 * sum / size (see ah_group_set_weight). f32 f64 i64 i32 u8 (bool: max/min); f16 and bf16 sum in f32. */
int ah_group_all_reduce(struct ah_group *group, void *buffer, int64_t count, enum ah_dtype dtype,
                        enum ah_reduce_op op);
int ah_group_broadcast(struct ah_group *group, void *buffer, int64_t count, enum ah_dtype dtype, int root);
/* Each rank gives `count` elements; out holds size * count, in rank order. */
int ah_group_all_gather(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype);
/* Ragged: rank r gives counts[r] elements (this rank's own must equal counts[rank]); out holds their sum. */
int ah_group_all_gather_v(struct ah_group *group, void *out, const void *in, const int64_t *counts,
                          enum ah_dtype dtype);
/* in holds size * count elements; out the reduced chunk of this rank. */
int ah_group_reduce_scatter(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype,
                            enum ah_reduce_op op);
int ah_group_gather(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype, int root);
int ah_group_scatter(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype, int root);
/* in and out hold size * count elements; chunk j of rank i goes to chunk i of rank j. */
int ah_group_all_to_all(struct ah_group *group, void *out, const void *in, int64_t count, enum ah_dtype dtype);
int ah_group_barrier(struct ah_group *group);

/* Asynchronous forms: post now, make progress in ah_work_test and ah_work_wait (which frees the work). The buffer
 * must stay untouched in between. The shm backend needs no thread: whoever comes last does what is left. */
int ah_group_all_reduce_start(struct ah_group *group, void *buffer, int64_t count, enum ah_dtype dtype,
                              enum ah_reduce_op op, struct ah_work **out);
int ah_work_test(struct ah_work *work, bool *done);
int ah_work_wait(struct ah_work *work);
int ah_work_wait_note(struct ah_work *work, uint32_t *note);
/* Give up a work whose result nobody wants. This rank still does its part of it in later calls. */
void ah_work_abandon(struct ah_work *work);

/* Memory that peers can reach without copying: collectives on buffers inside it are zero-copy. The region is
 * zero-filled, 64-byte aligned, private to the job, and lives until the group closes. For `self` it is plain
 * memory. Not a collective; but ranks that all-reduce a buffer in place there must have it at the same offset. */
int ah_group_arena_alloc(struct ah_group *group, size_t bytes, void **out);

#endif
