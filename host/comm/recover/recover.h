/* Live recovery: a rank that is killed is replaced by a new process, and its peers do not end.
 *
 * A boundary is a place in the script at which all earlier calls are complete: the request of a training loader's next
 * batch. There each rank publishes a note, its own state, and a slice of the state that is equal on all ranks. The
 * replacement of a rank that died after boundary b runs the script from its first line: its calls are replayed from the
 * log of all ranks since the job began (replay.c), up to the place where it loads the state of boundary b; from there
 * on the calls since b are replayed in the same way. Boundaries count from 0; the log from before boundary 0 is kept
 * for the whole job.
 *
 * A rank's Lua thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Was the job launched so that ranks are replaced? Otherwise nothing below does anything. */
bool ah_recovery_is_on(void);
/* Return this process's rank in the job, and the number of ranks; when recovery is on. */
int ah_recovery_rank(int *size);
/* Does this process replace another one, whose state it has not loaded yet? */
bool ah_recovery_is_due(void);

/* Return the memory for this rank's slice of the next boundary, `bytes` long, 64-byte aligned, and for its note, which
 * has `room`; when all earlier work has completed and no rank needs the previous contents. NULL when recovery is
 * off. */
int ah_recovery_slice(size_t bytes, void **out);
int ah_recovery_note(void **out, size_t *room);
/* Publish the next boundary of this rank: its note, which is copied unless it was written in place, and the slice that
 * was written before. AH_ESTATE when the script did not load a state that is due; AH_EMISMATCH when ranks have reached
 * the boundary by different calls. */
int ah_recovery_mark(const void *note, size_t bytes);
/* Return the last boundary that this rank has published or loaded, -1 before the first. */
int64_t ah_recovery_boundary(void);

/* Of a replacement: wait until all ranks have published the boundary at which it continues, and return that; -1: there
 * is none, the script is to run on from where it is, and nothing is due any more. */
int ah_recovery_find(int64_t *boundary);
/* After that: return a rank's note of the boundary, valid until this rank publishes the boundary after the next. */
int ah_recovery_note_of(int rank, const void **note, size_t *bytes);
int ah_recovery_slice_of(int rank, const void **slice, size_t *bytes);
/* This process is now where the boundary was, and so are its calls. The next mark is this boundary's, and does
 * nothing. */
int ah_recovery_take(void);

/* This process is a rank of a control block; its groups are the parts of `root`. By rank.c and by the backend that
 * keeps. */
struct ah_control_block;
struct ah_group;
void ah_recovery_join(struct ah_control_block *control, int rank);
void ah_recovery_lead(struct ah_group *root);
