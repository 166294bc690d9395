/* The launchers of a job on several machines: how they come together, and how each learns what became of the others.
 *
 * The machine that has the main process's address serves a store, to which all launchers are connected for as long as
 * the job lives. Each attempt of the job is a generation: the launchers meet anew, those of before and whoever has come
 * since, and the first machine says who takes part (machines_meet.h). What happens they append to one list, which each
 * reads in the same order, so that all come to the same verdict; when a launcher is gone, or its machine, the store
 * itself says so there. A generation's ranks have a store of their own. One thread uses this; beside it another one
 * reads and writes. */
#ifndef AH_CLI_MACHINES_H
#define AH_CLI_MACHINES_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/control/hosts.h"
#include "comm/control/secret.h"

struct ah_machines;

struct ah_machines_options {
    int machines, least; /* the most that take part, and the fewest */
    int number;          /* of this machine, -1: as they come */
    const char *address; /* of the first machine */
    int port;
    int ranks;           /* to run here */
    int size;            /* of the job, 0: what comes together */
    double timeout, patience; /* seconds until a machine that does not come is given up, and is told */
    double last_call;    /* seconds that machines may still come once the fewest are there */
    int restarts;        /* after failures, at most */
    double silence;      /* seconds without a sign of life after which a machine is gone */
    const char *secret_file; /* or NULL */
    const char *job;         /* its name (rdzv_id), or NULL */
};

/* Serve the store, if this is the first machine. AH_EINVAL for what contradicts, AH_EIO. */
int ah_machines_open(struct ah_machines **out, const struct ah_machines_options *options);
/* The others are told that this one goes, if they have not been told more. NULL is ignored. */
void ah_machines_close(struct ah_machines *machines);

/* Meet the others for the first attempt or the next one. `counts`: it follows a failure, and is one of the restarts
 * that are left. `stop` (or NULL) is asked now and then whether to wait no longer. AH_EINVAL for what contradicts,
 * AH_ETIMEOUT with who did not come, AH_EPEER when the first machine is gone or `stop` said so. */
int ah_machines_begin(struct ah_machines *machines, bool counts, bool (*stop)(void *context), void *context);
/* Of the attempt that has begun: who takes part, and where its ranks are to meet; its number among all; how many of
 * those before it failed. A machine that has joined a job learns from these what it came to. */
const struct ah_hosts *ah_machines_hosts(const struct ah_machines *machines);
int ah_machines_generation(const struct ah_machines *machines);
int ah_machines_restarts(const struct ah_machines *machines);
/* Is the first machine gone, at which all would meet again? */
bool ah_machines_is_lost(struct ah_machines *machines);

/* Readable when there is notifications. */
int ah_machines_fd(const struct ah_machines *machines);
/* Something has happened to another machine in this attempt: true, once. `signal` is the one by which its launcher was
 * asked to end the job, SIGTERM where all start anew because it leaves or has come, or 0: a rank has failed there, or
 * it is gone. */
bool ah_machines_trouble(struct ah_machines *machines, int *signal);

/* Tell the others at once: a rank has failed here, or (signal) this launcher was asked to end the job: where machines
 * may go, the first one excepted and as long as enough are left, it leaves the job to them. */
void ah_machines_tell(struct ah_machines *machines, int signal);

/* What became of the attempt on a machine. */
struct ah_machine_verdict {
    int code;         /* exit code (cli/job/job.h) */
    bool victim;      /* of what happened elsewhere */
    bool final;       /* nothing is to be started anew */
    const char *change; /* which machines came or went, for which all start anew though none failed; or NULL. Until the
                           next attempt */
    const char *text; /* the report, whole lines; or "" */
};
/* Tell what became of it here, wait for the others, and learn what became of all: the code, and the report of the
 * machine that is to blame (-1: none). `stop` is asked now and then whether to wait no longer. */
void ah_machines_conclude(struct ah_machines *machines, const struct ah_machine_verdict *mine,
                          bool (*stop)(void *context), void *context, struct ah_machine_verdict *all, int *blamed);

#endif
