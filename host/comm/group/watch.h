/* Wait for the peers of a group, so that every wait ends: with its event, or with an error that names the rank that
 * prevents it (different call, dead, ended, failed, late). Used by the dispatcher and by backends. */
#pragma once

#include "comm/group/backend.h"

/* Wait until every rank's counter has reached `target`: spins briefly, then sleeps. */
int ah_watch_wait(struct ah_group *group, enum ah_counter which, uint32_t target);
bool ah_watch_reached(struct ah_group *group, enum ah_counter which, uint32_t target);

/* For a backend that sleeps in its own way while it waits for data of call `sequence`: check the peers and the clock,
 * every 50 ms or so. Begins as {0}. */
struct ah_watch {
    int64_t waited, before, beat_at;
    uint32_t beats;
    bool reported;
};
int ah_watch_look(struct ah_watch *watch, struct ah_group *group, enum ah_counter which, uint32_t target);
/* The same for an action of one peer, or of any of them (-1); `call` names this rank's operation, for the texts. */
int ah_watch_peer(struct ah_watch *watch, struct ah_group *group, int peer, const char *call);
/* For a device communicator: check on a call that this rank has queued and its device has not completed; AH_EPEER when
 * a peer is lost, AH_ETIMEOUT with the rank that lags. Reads only: any thread, while the group is open. */
int ah_watch_device(struct ah_group *group, uint32_t sequence, const char *call, int64_t waited_ns, int64_t timeout_ns);
/* The same for a message from or to a peer. */
int ah_watch_message(struct ah_group *group, int peer, const char *call, int64_t waited_ns, int64_t timeout_ns);
/* Publish to the peers that the group has failed, before its own thread detects it. Any thread. */
void ah_watch_publish(struct ah_group *group, int status, const char *text);

/* For a rank that polls instead of sleeping; begins as {.left = group->spins}. False: it is time to sleep, else a
 * moment has passed. */
struct ah_spin {
    int left;
    int64_t end_ns;
};
bool ah_watch_spin(struct ah_group *group, struct ah_spin *spin);
/* Call between two polls of a counter; the other before the rank sleeps, or does something else for long. */
void ah_watch_relax(struct ah_group *group);
void ah_watch_leave(struct ah_group *group);

/* "barrier #2", "barrier #2 of group 1"; returns text. */
const char *ah_watch_title(struct ah_group *group, uint32_t sequence, char *text, size_t bytes);
