/* The offset of each parameter in the arenas, and the buckets of parameters that are averaged together.
 *
 * Reverse registration order, dtype by dtype, slots of multiples of 64 bytes; never changed again. A bucket closes
 * when it reaches its limit (1 MiB for the first of a dtype, 25 MiB for the others, or one limit for all) or its unit
 * ends. Knows sizes only. */
#pragma once

#include "tensor/tensor.h"

struct ah_slot {
    size_t offset, bytes; /* of the slot, holes included */
    int bucket;
};

struct ah_bucket {
    size_t offset, bytes; /* of its span, holes between its slots included */
    int64_t payload;      /* bytes of its parameters */
    enum ah_dtype dtype;
    int first, count; /* its parameters, as positions in reverse registration order */
};

struct ah_layout {
    int count, bucket_count;
    struct ah_slot *slot;     /* by registration */
    struct ah_bucket *bucket; /* by arena */
    size_t bytes;             /* of an arena */
};

struct ah_layout_options {
    int64_t bucket_bytes; /* > 0: the limit of every bucket */
    int parts;            /* a bucket can be cut into that many equal parts of whole lines */
    const int *unit;      /* by registration: a bucket holds parameters of one unit; NULL: all are of one */
};

/* Pure arithmetic: the same on every rank that has the same shapes. */
int ah_layout_init(struct ah_layout *layout, struct ah_tensor *const *params, int count,
                   struct ah_layout_options options);
void ah_layout_free(struct ah_layout *layout);
