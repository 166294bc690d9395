/* The progress thread: a thread of a host's leader that moves the large calls of all groups between hosts.
 *
 * The ranks of a host announce a call by their posts, and their completed parts by SLICED; the thread sends the host's
 * data from their segments to the other hosts' progress threads, over a transport, stores received data in the landings
 * of the ranks that need it, and advances their ROUND when the call has completed. It knows no group: everything it
 * needs is on the control block and in the segments. The leader's thread of Lua does this thread's work while it waits
 * for it. */
#pragma once

#include "comm/net/replica.h"

struct ah_progress;

int ah_progress_open(struct ah_progress **out, struct ah_control_block *control, struct ah_replica *replica,
                     int64_t timeout_ns);
void ah_progress_close(struct ah_progress *progress); /* NULL is ignored */

/* As of the replica. */
bool ah_progress_attend(struct ah_progress *progress);
void ah_progress_leave(struct ah_progress *progress);

/* A group control block's member table in the segment: the members of its group, in its order, and the call records
 * that the progress thread executes. Such a record stays until the progress thread has completed it. */
struct ah_member_table {
    atomic_uint wired[AH_GROUP_CALLS]; /* the sequence of the post at that place of the ring, if it is */
    atomic_int lost; /* the host (from 1) without which calls that are under way do not end, 0: none */
    int32_t size, member[AH_MAX_RANKS];
    uint32_t identity; /* of the group, the same on all hosts */
    double divisor[AH_GROUP_CALLS]; /* of a mean, for each post of a host's first rank */
};
