/* The replica: on a host's control block it keeps the rank entries of ranks on other hosts true.
 *
 * Two threads of the host's leader: one looks at what the own ranks write to their rank entries - calls, counters,
 * message headers, how they fare - and sends it to the other leaders; the other puts what they send into their ranks'
 * rank entries and wakes whoever sleeps there. So everything that looks at a control block (group.c, watch.c, message
 * request.c) finds all ranks of the job. What travels with a call or a message header, small inputs and messages, comes
 * to lie at the same place of the rank's segment on this host.
 *
 * A rank of the leader that waits does the threads' work itself (ah_replica_attend), so that what it waits for does not
 * wait for them; they nap meanwhile.
 *
 * A host whose connection breaks, or that has said nothing for a while, is gone: its ranks are marked as dead, with its
 * name. No thread of Lua waits for any of this. */
#ifndef AH_COMM_REPLICA_H
#define AH_COMM_REPLICA_H

#include "comm/control/control_block.h"
#include "comm/control/hosts.h"

struct ah_replica;

/* Connect to the other leaders (mesh.h) and begin. `control block` has its place (ah_control_place) and its segments
 * mapped. `silence_ns`: after which a host is gone; 0: 5 s. */
int ah_replica_open(struct ah_replica **out, struct ah_control_block *control, int64_t timeout_ns, int64_t silence_ns);

/* By the leader's thread of Lua while it waits: tell what is new, take what has come, and do not wait for either. True
 * when something has come. */
bool ah_replica_attend(struct ah_replica *replica);
/* It goes to sleep, or does something else: the threads are to go on. */
void ah_replica_leave(struct ah_replica *replica);

/* Wait until the other ranks of this host have ended too, which need the replica; not if this one has failed. */
void ah_replica_linger(struct ah_replica *replica);
/* Tell the other hosts how this one's ranks have ended. From then on it does nothing. */
void ah_replica_part(struct ah_replica *replica);
/* That, and free. NULL is ignored. */
void ah_replica_close(struct ah_replica *replica);

/* A host cannot be reached, says somebody else: its ranks are marked. Any thread. */
void ah_replica_lose(struct ah_replica *replica, int host, const char *why);
/* The same after a second, unless by then the host has reported which of its ranks died, or that it has ended: a rank
 * whose peer died ends at once, and its connection for data may break before that report is read. Any thread. */
void ah_replica_doubt(struct ah_replica *replica, int host, const char *why);

#endif
