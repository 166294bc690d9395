/* A call's memory in its rank's segment, where ranks are on several hosts: the input, room for data from other hosts,
 * for the own host's sum, and the counts. */
#pragma once

#include "comm/control/segment.h"
#include "comm/group/backend.h"
#include "comm/net/team.h"

struct ah_hold {
    void *copy, *landing, *partial, *counts; /* NULL: none allocated */
    size_t copy_bytes, landing_bytes, partial_bytes, counts_bytes;
};

/* The owner of held memory. */
struct ah_holder {
    struct ah_segment *segment;
    const struct ah_team *team;
    int rank;
};

/* Hold the input alone; `copy`: in separate memory in any case. */
int ah_hold_input(const struct ah_holder *h, const struct ah_collective *call, bool copy, struct ah_hold *hold,
                  struct ah_call_arguments *out);
/* Hold all memory of a call whose bytes the progress thread moves. */
int ah_hold_wired(const struct ah_holder *h, const struct ah_collective *call, struct ah_hold *hold,
                  struct ah_call_arguments *out);
void ah_hold_release(const struct ah_holder *h, struct ah_hold *hold);
