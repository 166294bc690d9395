/* A launcher's entry into a generation of its job, which the first machine's coordinator
 * (cli/machines/machines_coordinator.h) opens and closes. Included by cli/machines only.
 *
 * Keys of the store: `job`, the job's identity; `generation`, the newest one's number; and of generation G the list
 * hosts/G, a line for each machine that arrived; the list events/G, which begins with "here PLACE" of each of them and
 * continues with events (machines_link.h); answer/G/PLACE, the coordinator's answer to the machine with line PLACE: a
 * table of hosts or an error; and missing/G, the text of the missing machines. */
#pragma once

#include <stdbool.h>

#include "comm/control/hosts.h"
#include "comm/control/secret.h"
#include "comm/join/membership.h"

enum { AH_MACHINES_ANSWER = AH_HOSTS_TEXT + 24 * (AH_HOSTS_MAX + 2), AH_MACHINES_JOB = 48 };

struct ah_rendezvous {
    struct ah_membership mine;
    struct ah_store *store; /* connected; ownership passes to the caller that joined */
    char job[AH_MACHINES_JOB]; /* "" before one is known */
    int generation, restarts;
    int port;               /* of the ranks' store */
    int64_t place;          /* of the own line */
    int64_t places[AH_HOSTS_MAX]; /* of each machine's */
    int64_t begin_ns;
    bool reported;
};

/* Connect and write the own line into this generation or a later one that is the newest. AH_ETIMEOUT; AH_EPEER when the
 * first machine has begun another job. */
int ah_rendezvous_enter(struct ah_rendezvous *rendezvous, const struct ah_store_options *place, int generation);
/* Receive the coordinator's answer: count, mine, first and name of the hosts, and the fields above. Continues with the
 * next generation when this one begins without it. AH_EINVAL, AH_ETIMEOUT; AH_EPEER when the first machine is lost or
 * `stop` returns true. */
int ah_rendezvous_await(struct ah_rendezvous *rendezvous, bool (*stop)(void *context), void *context,
                        struct ah_hosts *out);
void ah_rendezvous_leave(struct ah_rendezvous *rendezvous);

/* Write the coordinator's table as a text; return its length. */
int ah_rendezvous_write(const struct ah_rendezvous *rendezvous, const struct ah_hosts *hosts, char *text, size_t room);
