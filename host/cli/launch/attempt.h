/* One run of all ranks in the foreground: merge their output, forward signals, report the failure attribution. */
#pragma once

#include <stdbool.h>

#include "cli/job/job.h"

struct ah_rank_logs;

struct ah_attempt_options {
    struct ah_job_options job; /* terminal, columns and where output and notices go are filled in */
    struct ah_rank_logs *logs; /* or NULL; begun for this attempt */
    int signals;               /* of ah_attempt_signals */
    bool quiet;                /* print failures only */
    struct ah_machines *machines; /* the other participants, begun for this attempt; or NULL */
    bool final;                /* set by the run: no restart may follow, since the ranks' output cannot be written
                                  any more, or the first machine is lost */
    char *failure;             /* set by the run, from malloc: the report of its failure; or NULL */
    int failure_code;          /* of the rank that is to blame, negative for a signal; 0: another machine's, or none */
    const char *change;        /* set by the run: which machines joined or left, so that all restart whatever the
                                  code; or NULL */
};

/* Block the signals that end or stop a job, but for those that the parent had us ignore, and return a signalfd
 * of them; AH_EIO. */
int ah_attempt_signals(void);
/* Return the number of a received signal that ends a job; else 0. */
int ah_attempt_signalled(int signals);

/* Run it to its end. Return 0 with its exit code (cli/job/job.h; also 3 when output of ranks cannot be written), or a
 * status. */
int ah_attempt_run(struct ah_attempt_options *options, int *code);
