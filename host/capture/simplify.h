/* Changes to the records of a captured step that leave its results as they are. Lua thread only. */
#pragma once

#include "capture/record.h"

/* Have kernels write where their results are copied whole, such as gradients into their slots, and drop the copies. */
void ah_records_elide_copies(struct ah_records *records);

/* The places in records that contain an address of an input, which is a tensor from outside. */
struct ah_record_places {
    void ***at;
    size_t count, room;
};

/* List the places of an input's address; none when the input cannot be read elsewhere: a record writes it, reads it by
 * a bare address, or it is referred to from outside of the graph and of `input` itself. AH_ENOMEM. */
int ah_records_places(struct ah_records *records, const struct ah_tensor *input, struct ah_record_places *places);
