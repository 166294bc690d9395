/* The coordinator of a rendezvous (cli/machines/machines_rendezvous.h), on the first machine: it collects the member
 * table, closes it and sends it to each machine. Included by cli/machines only; for one thread.
 *
 * Circle: machines, machines_coordinator: a launcher runs the coordinator, which reads the options of the launcher. */
#pragma once

#include "cli/machines/machines.h"
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
    int here;         /* machines that have arrived and not left, with a place or without */
    int64_t begin_ns, enough_ns; /* since when there are as many as are needed; 0: there are not */
    bool reported;
};

int ah_coordinator_open(struct ah_coordinator *coordinator, const struct ah_store_options *place,
                        const struct ah_machines_options *options);
void ah_coordinator_close(struct ah_coordinator *coordinator);

/* Open a generation, and collect the member table until it is complete. AH_EINVAL for contradictory settings,
 * AH_ETIMEOUT with the missing machines, AH_EPEER when `stop` returns true. */
int ah_coordinator_begin(struct ah_coordinator *coordinator, const struct ah_membership *mine, int generation,
                         int expected);
int ah_coordinator_call(struct ah_coordinator *coordinator, bool (*stop)(void *context), void *context);
/* Send the table to all members, with the port and the restarts of `rendezvous`. */
int ah_coordinator_answer(struct ah_coordinator *coordinator, const struct ah_rendezvous *rendezvous);
/* Send the last error of this thread, `status`, to all members in place of a table; returns `status` when they have
 * left, within a short time. */
int ah_coordinator_refuse(struct ah_coordinator *coordinator, int status);

/* Handle a machine that arrives while the ranks run. True with its name if all are to restart with it; otherwise it is
 * refused, or waits for the next generation (`last`: none follows). */
bool ah_coordinator_knock(struct ah_coordinator *coordinator, int64_t place, bool last, char name[AH_HOST_NAME]);
