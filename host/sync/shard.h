/* A rank's shard of a prepared model: slice `rank` of every bucket, which is cut into as many equal slices of whole
 * lines as there are ranks. Of each parameter it is one run of elements, perhaps an empty one.
 *
 * A sharded step is hold ... the step over the pieces ... spread. */
#pragma once

#include "sync/reducer.h"

/* Bytes of an arena. */
struct ah_span {
    size_t offset, bytes;
};
struct ah_span ah_shard_of_bucket(const struct ah_reducer *reducer, int bucket, int rank);

/* A rank's elements of a parameter, in memory order; all of them without sharding. */
struct ah_run {
    int64_t first, count;
};
struct ah_run ah_shard_of_param(const struct ah_reducer *reducer, int index, int rank);

/* This rank's piece of a parameter, or of its gradient's slot: [count], on the same memory. */
int ah_shard_piece(struct ah_tensor **out, struct ah_reducer *reducer, int index, bool of_gradient);

/* On a device: copy whole gradients that are means to their pieces; release the whole
 * parameters of a unit (-1: of all); make all parameters whole, a collective. Else nothing. */
int ah_shard_settle(struct ah_reducer *reducer);
int ah_shard_release(struct ah_reducer *reducer, int unit);
int ah_shard_make_whole(struct ah_reducer *reducer, const char *where);

/* Before an optimizer step: wait until no rank reads parameters that are stored once for all ranks; on a device settle
 * and release whole buckets. A collective. */
int ah_shard_hold(struct ah_reducer *reducer, const char *where);
/* Every rank has stepped its pieces: all get all of them. A collective, and a write in place to every parameter. */
int ah_shard_spread(struct ah_reducer *reducer, const char *where);

/* Sharded gradients: a slot holds a mean, this rank's part of it, or this rank's sum. A backward adds a part of a sum
 * to a mean, so before it means are multiplied by the number of ranks: the sum of all ranks, divided by that number,
 * then has them once. Nothing happens where gradients are not sharded. */

/* Before a backward. */
int ah_shard_weigh(struct ah_reducer *reducer);
/* It did not happen. */
int ah_shard_unweigh(struct ah_reducer *reducer);
/* The gradients that there are now are means. */
void ah_shard_are_means(struct ah_reducer *reducer);
/* The first parameter whose gradient is none, -1 without. */
int ah_shard_find_sum(const struct ah_reducer *reducer);

/* For average.c. Free the memory of a bucket whose gradients are reduced, but for the own slice; nothing unless
 * gradients are sharded. */
int ah_shard_drop_rest(struct ah_reducer *reducer, int bucket);
/* For reducer.c. Parameters of a device are gathered by steps, from now on and no longer. */
int ah_shard_expect(struct ah_reducer *reducer);
void ah_shard_forget(struct ah_reducer *reducer);
