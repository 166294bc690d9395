/* A launcher's state of its job's machines. Included by cli/machines only. */
#pragma once

#include "cli/machines/machines.h"
#include "cli/machines/machines_coordinator.h"
#include "cli/machines/machines_link.h"

struct ah_machines {
    struct ah_machines_options options;
    struct ah_store_server *server, *ranks; /* on the first machine */
    struct ah_coordinator coordinator;                    /* likewise */
    struct ah_store_options place;
    struct ah_secret secret;
    struct ah_hosts hosts;
    struct ah_machine_link link;
    bool linked, reported;
    char job[AH_MACHINES_JOB];
    bool claims; /* its number, whatever it was before */
    int generation, restarts, reported_trouble;
};

/* By which the list names this machine. */
static inline int64_t ah_machines_place(const struct ah_machines *machines)
{
    return machines->link.places[machines->hosts.mine];
}

/* With the link's lock: count the machines that are here and stay; does one leave the job to the others? */
int ah_machines_staying(const struct ah_machine_link *link);
bool ah_machines_leaves(const struct ah_machines *machines, int h);
