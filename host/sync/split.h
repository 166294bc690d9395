/* Parameters or gradients of a model on a device, of which a rank keeps its slices only: a bucket is whole, in separate
 * memory, from its first use to its release.
 *
 * Tensors of an absent bucket are marked (`absent` of their storage), and whatever reads or writes them makes their
 * bucket whole first: of gradients by the own slice and zeros, of parameters by gathering all slices, a collective. The
 * order of the buckets that a step used is remembered, and while one is used the next is gathered. Lua thread only.
 *
 * Circle: reducer, shard, split: a reducer owns splits and steps their slices, which are those of its layout and group
 * (state.h). */
#pragma once

#include "sync/reducer.h"

struct ah_split;
struct ah_arena;

/* The slices are zero. */
int ah_split_new(struct ah_split **out, struct ah_reducer *reducer, bool of_gradients);
void ah_split_free(struct ah_split *split); /* NULL is ignored; tensors of absent buckets cannot be used any more */

/* The memory of a bucket, NULL while it is absent; that of this rank's slice of it. */
struct ah_arena *ah_split_whole(struct ah_split *split, int bucket);
char *ah_split_slice(struct ah_split *split, int bucket);
struct ah_arena *ah_split_slices(struct ah_split *split);

/* Make a bucket whole; nothing where it is. Of parameters a collective. */
int ah_split_fetch(struct ah_split *split, int bucket);
/* Give a bucket memory with undefined contents, to be filled by the caller. */
int ah_split_allocate(struct ah_split *split, int bucket);
/* Release the memory of a bucket: the own slice first keeps its new values (settle), or does not (drop). */
int ah_split_settle(struct ah_split *split, int bucket);
int ah_split_drop(struct ah_split *split, int bucket);
int ah_split_settle_all(struct ah_split *split);

/* The buckets are used from the first again: gather that one ahead. */
int ah_split_rewind(struct ah_split *split);
