/* Arguments of the indexing kernels.
 *
 * Rows: blocks of outer x n x inner elements, by an index of `count` rows. Lines: elements of the index's shape, each
 * with a place in the indexed tensor, by strides. The owner of an element that is read gathers its places; writes go
 * through a list sorted by destination, in the order of the index, so that a destination has one owner. */
#pragma once

#include <stdint.h>

#define AH_INDEX_NONE 0xffffffffu

enum { AH_INDEX_THREADS = 256, AH_INDEX_DIMS = 8, AH_INDEX_PIECE = 64 };

/* The result at a destination: the last of its sources, or its value folded with all of them, one after another. */
enum ah_index_fold { AH_INDEX_LAST, AH_INDEX_ADD, AH_INDEX_MULTIPLY, AH_INDEX_LARGER, AH_INDEX_SMALLER };

/* to[o, k] = from[o, at[k]]; rows of `width` items of 1, 2, 4, 8 or 16 bytes, `row` items apart in `from`. */
struct ah_pick_args {
    uint64_t to, from, at;
    int64_t outer, n, count, width, row;
};

/* keys[k] = at[k], or `n` where that is out of range or `skip`. */
struct ah_row_keys_args {
    uint64_t keys, at;
    int64_t count, n, skip;
};

/* to[o, keys[j]] with the rows order[j], order[j + 1] ... of `from` that have this key. With a map (bag_add) it is the
 * rows map[order[j]] of its `sources`, those beyond them left out, times scale[order[j]]; there `order` may be 0. */
struct ah_rows_fold_args {
    uint64_t to, from, keys, order, map, scale;
    int64_t sources;
    uint64_t parts; /* of sums: [outer, stretches, 2, inner], 8 bytes each or 4 */
    int64_t outer, n, count, inner, stretches;
    int64_t from_row; /* 0: the row of one value, else inner */
    double alpha;
    int32_t fresh; /* `to` holds nothing yet that counts */
};

/* For each position of a list, from 0, the bag that contains it by the bags' starts (`bags` after the last one), and
 * its row of a table of n; AH_INDEX_NONE for `skip`, for an index out of range and a position in no bag. */
struct ah_bag_args {
    uint64_t bag, row, at, starts;
    int64_t count, bags, n, skip;
};

/* Lines: the places of an element of the index in the indexed tensor and in the other one. `parts` as those of rows:
 * [stretches, 2]. */
struct ah_slices_args {
    uint64_t to, from, at, keys, order, parts;
    int64_t count, n; /* n: sizes of dim in the indexed tensor */
    int64_t size[AH_INDEX_DIMS];
    int64_t indexed[AH_INDEX_DIMS], other[AH_INDEX_DIMS]; /* strides */
    int64_t places; /* of the indexed tensor: keys that are out of range are that */
    int32_t ndim, dim, fold;
};
