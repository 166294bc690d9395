/* The launchers of a job on several machines: their rendezvous, and the exchange of their state and failures.
 *
 * The machine that has the main process's address serves a store, to which all launchers are connected for as long as
 * the job lives. Each attempt of the job is a generation: the known launchers and newcomers run a rendezvous, and the
 * first machine selects the members (machines_rendezvous.h). Launchers append events to one list, which all read in
 * the same order, so that all reach the same failure attribution; when a launcher or its machine is lost, the store
 * itself appends that. A generation's ranks have a separate store. For one thread; an internal thread reads and
 * writes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "comm/control/hosts.h"
#include "comm/control/secret.h"

struct ah_machines;

struct ah_machines_options {
    int machines, least; /* the most that participate, and the fewest */
    int number;          /* of this machine, -1: by order of arrival */
    const char *address; /* of the first machine */
    int port;
    int ranks;           /* to run here */
    int size;            /* of the job, 0: the sum over its machines */
    double timeout, stall_warning; /* seconds until a missing machine is an error, and is reported */
    double last_call;    /* seconds to wait for more machines after the minimum has joined */
    int restarts;        /* after failures, at most */
    double heartbeat_timeout; /* seconds without a sign of life after which a machine is lost */
    const char *secret_file; /* or NULL */
    const char *job;         /* its name (rdzv_id), or NULL */
};

/* Serve the store, if this is the first machine. AH_EINVAL for contradicting options, AH_EIO. */
int ah_machines_open(struct ah_machines **out, const struct ah_machines_options *options);
/* Report to the others that this one leaves, unless its end has been reported. NULL is ignored. */
void ah_machines_close(struct ah_machines *machines);

/* Meet the others for the first attempt or the next one. `counts`: it follows a failure, and is one of the restarts
 * that are left. `stop` (or NULL) is polled: true ends the wait. AH_EINVAL for contradictory settings,
 * AH_ETIMEOUT with the missing machines, AH_EPEER when the first machine is lost or `stop` returned true. */
int ah_machines_begin(struct ah_machines *machines, bool counts, bool (*stop)(void *context), void *context);
/* Of the attempt that has begun: its members and the address of its ranks' rendezvous; its number among all; the number
 * of earlier ones that failed. A machine that joins a running job receives them here. */
const struct ah_hosts *ah_machines_hosts(const struct ah_machines *machines);
int ah_machines_generation(const struct ah_machines *machines);
int ah_machines_restarts(const struct ah_machines *machines);
/* Is the first machine lost, at which all would meet again? */
bool ah_machines_is_lost(struct ah_machines *machines);

/* Readable when there is notifications. */
int ah_machines_fd(const struct ah_machines *machines);
/* Return true, once, after an event of another machine in this attempt. `signal` is the one by which its launcher was
 * asked to end the job, SIGTERM for a restart because it leaves or has joined, or 0: a rank has failed there, or it
 * is lost. */
bool ah_machines_trouble(struct ah_machines *machines, int *signal);

/* Report to the others at once: a rank has failed here, or (signal) this launcher was asked to end the job: if machines
 * may leave, it only leaves the job, unless it is the first one or too few remain. */
void ah_machines_report(struct ah_machines *machines, int signal);

/* The result of an attempt on a machine. */
struct ah_machine_attribution {
    int code;         /* exit code (cli/job/job.h) */
    bool victim;      /* of an event elsewhere */
    bool final;       /* no restart may follow */
    const char *change; /* which machines joined or left, the reason of a restart without a failure; or NULL. Valid
                           until the next attempt */
    const char *text; /* the report, whole lines; or "" */
};
/* Report this machine's outcome, wait for those of the others, and return the outcome of all: the code, and the report
 * of the machine that is to blame (-1: none). `stop` is polled: true ends the wait. */
void ah_machines_conclude(struct ah_machines *machines, const struct ah_machine_attribution *mine,
                          bool (*stop)(void *context), void *context, struct ah_machine_attribution *all, int *blamed);
