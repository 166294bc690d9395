/* The hosts of a job whose ranks do not all run on one.
 *
 * Every host has its own control block, with rank entries for all ranks of the job; the ranks of a host are
 * consecutive. One process of each host, its first rank, leads: it updates the rank entries of other hosts' ranks
 * (replica.h) and moves bytes between hosts (transport.h). The rendezvous of a job's ranks fills this in and passes it
 * to each rank, which stores it in its control block (ah_control_place). */
#pragma once

#include <stdbool.h>

#include "comm/store/store.h"

enum { AH_HOSTS_MAX = 64, AH_HOST_NAME = 64 };

struct ah_hosts {
    int count, mine;                        /* hosts of the job; this process's */
    int first[AH_HOSTS_MAX + 1];            /* ranks of host h: first[h] .. first[h + 1] - 1 */
    char name[AH_HOSTS_MAX][AH_HOST_NAME];  /* for reports */
    struct ah_store_options store;            /* of the job; the leaders connect to it */
    const char *address; /* that the other leaders reach this one at; NULL: by which it reaches the store */
    const char *transport;    /* that moves the bytes: "tcp", "mpi" */
};

/* The host that a rank is on. */
static inline int ah_hosts_of(const struct ah_hosts *hosts, int rank)
{
    int h = 0;
    while (h + 1 < hosts->count && rank >= hosts->first[h + 1])
        h++;
    return h;
}
