/* The first machine's part in a meeting (cli/machines/machines_rendezvous.h): it calls the member table, says when that
 * is closed, and tells each machine the table. Included by cli/machines only; of one thread. */
#ifndef AH_CLI_MACHINES_COORDINATOR_H
#define AH_CLI_MACHINES_COORDINATOR_H

#include "cli/machines/machines_rendezvous.h"
#include "comm/join/membership_table.h"

struct ah_coordinator {
    const struct ah_machines_options *options;
    struct ah_store *store;
    struct ah_membership mine;
    struct ah_member_table member_table;
    int generation;
    int expected;     /* machines that were there before */
    int64_t heard;    /* of the list of events */
    int here;         /* that have come and not gone, places or not */
    int64_t begin_ns, enough_ns; /* since when there are as many as are needed; 0: there are not */
    bool told;
};

int ah_coordinator_open(struct ah_coordinator *coordinator, const struct ah_store_place *place,
                        const struct ah_machines_options *options);
void ah_coordinator_close(struct ah_coordinator *coordinator);

/* Open a generation, and call the member table until it is complete. AH_EINVAL for what contradicts, AH_ETIMEOUT with
 * who did not come, AH_EPEER when `stop` says so. */
int ah_coordinator_begin(struct ah_coordinator *coordinator, const struct ah_membership *mine, int generation,
                         int expected);
int ah_coordinator_call(struct ah_coordinator *coordinator, bool (*stop)(void *context), void *context);
/* Tell all who have come the table, with the port and the restarts of `meeting`. */
int ah_coordinator_answer(struct ah_coordinator *coordinator, const struct ah_rendezvous *rendezvous);
/* Tell all who have come that there will be none, since the last call of this thread failed with `status`, which is
 * the result; returns when they have gone, within a moment. */
int ah_coordinator_refuse(struct ah_coordinator *coordinator, int status);

/* Somebody comes while the ranks run. True with its name when all are to start anew with it; else it is told that it
 * has no place, or waits for one: `last` says that no generation follows. */
bool ah_coordinator_knock(struct ah_coordinator *coordinator, int64_t place, bool last, char name[AH_HOST_NAME]);

#endif
