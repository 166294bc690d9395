/* The replica: on a host's control block it keeps the rank entries of ranks on other hosts up to date.
 *
 * Two threads of the host's leader: one reads the writes of the own ranks to their rank entries - calls, counters,
 * message headers, states - and sends them to the other leaders; the other writes received data to the rank entries of
 * the other hosts' ranks and wakes the ranks that sleep there. So every reader of a control block (group.c, watch.c,
 * message.c) finds all ranks of the job. Inline data of a call or a message header, small inputs and messages, is
 * stored at the same place of the rank's segment on this host.
 *
 * A waiting rank of the leader does the threads' work itself (ah_replica_attend), so that it does not depend on their
 * wake-up; they nap meanwhile.
 *
 * A host whose connection breaks, or that has sent nothing for a while, is lost: its ranks are marked as dead, with its
 * name. No thread of Lua waits for any of this. */
#pragma once

#include "comm/control/control_block.h"
#include "comm/control/hosts.h"

struct ah_replica;

/* Connect to the other leaders (mesh.h) and begin. `control block` has its place (ah_control_place) and its segments
 * mapped. `heartbeat_timeout_ns`: after which a host is lost; 0: 5 s. */
int ah_replica_open(struct ah_replica **out, struct ah_control_block *control, int64_t timeout_ns,
                    int64_t heartbeat_timeout_ns);

/* By the leader's thread of Lua while it waits: send changes, apply received data, and wait for neither. True when
 * something was received. */
bool ah_replica_attend(struct ah_replica *replica);
/* The rank stops polling: the threads are to continue. */
void ah_replica_leave(struct ah_replica *replica);

/* Wait until the other ranks of this host have ended too, which need the replica; not if this one has failed. */
void ah_replica_linger(struct ah_replica *replica);
/* Send the other hosts the final states of this one's ranks. From then on it does nothing. */
void ah_replica_part(struct ah_replica *replica);
/* That, and free. NULL is ignored. */
void ah_replica_close(struct ah_replica *replica);

/* Mark the ranks of a host that another component reports as unreachable. Any thread. */
void ah_replica_lose(struct ah_replica *replica, int host, const char *why);
/* The same after a second, unless by then the host has reported which of its ranks died, or that it has ended: a rank
 * whose peer died ends at once, and its connection for data may break before that report is read. Any thread. */
void ah_replica_doubt(struct ah_replica *replica, int host, const char *why);
