/* Gathering batches: rows of in-memory columns, picked by index, become batch tensors.
 *
 * A column is a contiguous tensor [rows, ...]; a uint8 column may carry a table that turns each byte into a float32 in
 * the same pass (ToTensor and Normalize are such a table), a grid of steps that move its pixels (data/grid.h), and a
 * rectangle to erase of the floats (data/erase.h); each sample has its own random stream (data/stream.h). Batches are
 * requested ahead and returned in order. A large one is filled meanwhile by the process's loader thread; a small one by
 * ah_gather_take, because handing it over would cost more than filling it.
 *
 * The functions belong to the Lua thread. The loader thread touches bytes only: no tensor headers, no Lua, no
 * OpenMP, no allocator. It runs while a gather that has used it exists. Columns must not change while batches are
 * pending. This file knows no epochs, shuffling or ranks. */
#pragma once

#include <stddef.h>

#include "data/column.h"

enum {
    AH_GATHER_COLUMNS = 16,
    AH_GATHER_INLINE = 1 << 20, /* batches below this many bytes are filled by the taker */
};

struct ah_gather;

/* Create a gather of columns, whose tensors it retains. AH_EINVAL names a column with another number of rows. */
int ah_gather_new(struct ah_gather **out, const struct ah_gather_column *columns, int count, size_t inline_bytes);

/* Allocate the batches requested from now on in pinned memory of this device. AH_EINVAL when it has none. */
int ah_gather_pin(struct ah_gather *gather, struct ah_device *device);

/* Waits for a batch that is being filled, drops the others. NULL is ignored. */
void ah_gather_free(struct ah_gather *gather);

/* Ask for a batch; the order is copied. Rows are checked when the batch is filled. */
int ah_gather_post(struct ah_gather *gather, const struct ah_gather_order *order);

/* Wait for the oldest requested batch: one tensor [count, ...] per column into out[]. AH_ESTATE when none is requested;
 * AH_EINVAL when an index was out of range (that batch is dropped). */
int ah_gather_take(struct ah_gather *gather, struct ah_tensor **out);

/* Return the number of columns, of rows, and of batches requested but not returned. */
int ah_gather_columns(const struct ah_gather *gather);
int64_t ah_gather_rows(const struct ah_gather *gather);
int ah_gather_pending(const struct ah_gather *gather);

/* Is the oldest requested batch filled, so that ah_gather_take returns at once? */
bool ah_gather_is_filled(const struct ah_gather *gather);

/* Would a batch of `count` rows go to the loader thread? Only then is it worth posting ahead. */
bool ah_gather_is_threaded(const struct ah_gather *gather, int64_t count);

/* Has a column steps that draw random numbers? */
bool ah_gather_is_random(const struct ah_gather *gather);
