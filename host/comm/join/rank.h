/* This process as a rank of a launched job: its control block, and its reports there.
 *
 * Without a launcher the functions that report do nothing. One control block per process. */
#pragma once

#include <stdbool.h>

struct ah_control_block;

/* In the environment of a job's ranks and of all that they start; its value names the job (cli/job/orphans.h). */
#define AH_JOB_MARK "ACCELHOST_JOB"

/* Map the control block that the launcher handed over (descriptor number in ACCELHOST_CONTROL_BLOCK) and mark this rank
 * as running; *out is NULL when there is none. In a program that a rank has started, RANK and its kin leave the
 * environment: it is no rank. Idempotent; best called at the start of main, so that programs started by the script do
 * not inherit the descriptors. AH_EIO when the descriptor is no control block. */
int ah_rank_attach(struct ah_control_block **out);

/* Meet the other ranks of a job that has no launcher, and be one of them from then on; *out is NULL for a job of
 * one. */
int ah_rank_rendezvous(struct ah_control_block **out);

/* Create a control block for a process without a launcher, for `accelhost top`; it is no job and nothing else changes.
 * Failures are ignored. */
void ah_rank_show_alone(void);

/* The control block of the only rank of a job: its launcher's, else a new one. */
int ah_rank_control_alone(struct ah_control_block **out);

/* The script failed: leave `traceback` (message first) for the launcher's report, note the time, claim to be the
 * first failed rank, wake every peer that waits for this one. `victim`: the failure follows from another rank's; a
 * group poisoned by a failed peer implies it. The caller then flushes and calls _exit(1). Returns true when the
 * launcher will print the text for this rank if it was the first to fail: print nothing then. */
bool ah_rank_report_failure(const char *traceback, bool victim);

/* Did this rank lose a peer? Then whatever it fails of follows from that. */
bool ah_rank_lost_peer(void);

/* The script has ended: peers that still wait for this rank raise. Called by exit handlers too. False when a collective
 * had failed and the script continued: that is this rank's failure, which the launcher reports, and no exit code 0 may
 * follow. */
bool ah_rank_report_end(void);

/* At an interactive prompt whose lines run in several processes: this rank begins a line, and has completed it. A peer
 * that still waits for this rank in that line then fails. */
void ah_rank_begin_line(int line);
void ah_rank_end_line(int line);

/* Report whether the job's standard output (fd 1) or error (fd 2) is a terminal, for progress bars, and its width
 * (*columns 0: unknown). Asks the launcher where there is one, because it writes in the end. */
bool ah_rank_terminal(int fd, int *columns);
