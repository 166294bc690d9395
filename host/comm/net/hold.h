/* A call's memory in its rank's segment, where ranks are on several hosts: the input, room for data from other hosts,
 * for the own host's sum, and the counts. */
#ifndef AH_COMM_HOLD_H
#define AH_COMM_HOLD_H

#include "comm/control/segment.h"
#include "comm/group/backend.h"
#include "comm/net/team.h"

struct ah_hold {
    void *copy, *landing, *partial, *counts; /* NULL: none of its own */
    size_t copy_bytes, landing_bytes, partial_bytes, counts_bytes;
};

/* Whose it is. */
struct ah_holder {
    struct ah_segment *segment;
    const struct ah_team *team;
    int rank;
};

/* The input alone; `copy`: in memory of its own in any case. */
int ah_hold_input(const struct ah_holder *h, const struct ah_collective *call, bool copy, struct ah_hold *hold,
                  struct ah_call_arguments *out);
/* All that a call needs of which the progress thread moves the bytes. */
int ah_hold_wired(const struct ah_holder *h, const struct ah_collective *call, struct ah_hold *hold,
                  struct ah_call_arguments *out);
void ah_hold_release(const struct ah_holder *h, struct ah_hold *hold);

#endif
