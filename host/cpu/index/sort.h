/* Private to the kernels that sort and select: values as unsigned keys of the same order, nan the largest, -0 equal to
 * 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/numeric/dtype.h"

struct ah_tensor;

/* A value's key and its place in the line. */
struct ah_sort_entry {
    uint64_t key;
    int64_t at;
};

/* The entries of n values, `stride` items apart, in their order; `descending` turns the order of the keys round. */
void ah_sort_keys(struct ah_sort_entry *entry, int64_t n, const void *data, int64_t stride, enum ah_dtype dtype,
                  bool descending);

/* Sort, stable; `scratch` has room for n. */
void ah_sort_entries(struct ah_sort_entry *entry, struct ah_sort_entry *scratch, int64_t n);

/* Return the entry that would be at `rank` after a stable sort, without sorting: `entry` stays, `scratch` has room for
 * n. */
struct ah_sort_entry ah_sort_select(const struct ah_sort_entry *entry, struct ah_sort_entry *scratch, int64_t n,
                                    int64_t rank);

/* Keys of 32 bits, of the same order, and the place of the value at `rank` of a stable sort by them: `key` stays,
 * `scratch` has room for n. For dtypes that have such keys. */
bool ah_sort_has_short_keys(enum ah_dtype dtype);
void ah_sort_short_keys(uint32_t *key, int64_t n, const void *data, int64_t stride, enum ah_dtype dtype);
int64_t ah_sort_select_short(const uint32_t *key, uint32_t *scratch, int64_t n, int64_t rank);

/* The first `keep` (at least 1) of a stable sort by such keys into `entry`, in the order of their places; `descending`
 * turns the order of the keys round, and the keys themselves. */
void ah_sort_smallest_short(uint32_t *key, uint32_t *scratch, int64_t n, int64_t keep, bool descending,
                            struct ah_sort_entry *entry);

/* The first `keep` (at least 1) of a stable sort into entry[0..keep); `scratch` has room for n. */
void ah_sort_smallest(struct ah_sort_entry *entry, struct ah_sort_entry *scratch, int64_t n, int64_t keep);

/* Items before the first of a line along `dim`. */
int64_t ah_sort_line_start(const struct ah_tensor *tensor, int dim, int64_t line);
