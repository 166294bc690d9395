/* The replay log in a rank's data segment, where killed ranks are replaced: the inputs of each of its calls, and its
 * notes and slices of the last two boundaries (recover.h).
 *
 * Inputs from before boundary 0 are kept for good; later ones for the interval since the last boundary and the one
 * before it. The launcher holds the segment, so it outlives the rank. A rank writes its own; peers and its replacement
 * read. A backend with a replay log uses the segment for nothing else. */
#pragma once

#include "comm/control/control_block.h"

/* The input of a rank to one call. */
struct ah_replay_entry {
    uint32_t sequence;
    uint32_t note;
    uint64_t hash; /* as of its post, as the rest */
    double weight;
    uint64_t offset, bytes; /* of the input, in the segment */
    uint8_t kind;
    bool async;
    _Alignas(64) char where[AH_CALL_WHERE];
};

/* Ranks are replaced in this job: extend each segment to hold all parts of a log at their offsets; only written pages
 * use memory. By the control block's maker, before any rank maps it. */
int ah_replay_enable(struct ah_control_block *control);
/* Is all of it mapped here? */
int ah_replay_check(const struct ah_control_block *control);

/* Return the rank's input to a call that it has issued; NULL: it is no longer in the log. */
const struct ah_replay_entry *ah_replay_find(struct ah_control_block *control, int rank, int block, uint32_t sequence);
/* Its input. */
const void *ah_replay_input(const struct ah_control_block *control, int rank, const struct ah_replay_entry *kept);
/* Log this rank's input to its next call on the group block, before it posts that. */
int ah_replay_add(struct ah_control_block *control, int rank, int block, const struct ah_call_record *record,
                  const void *in, size_t bytes);
/* Drop the log from before the previous boundary, which all ranks have published; `boundary` is the next one. */
void ah_replay_turn(struct ah_control_block *control, int rank, uint32_t boundary);

/* Return the address of a boundary's note or slice, of at most that many bytes. */
enum ah_replay_part { AH_REPLAY_NOTE, AH_REPLAY_SLICE };
unsigned char *ah_replay_part(const struct ah_control_block *control, int rank, enum ah_replay_part part,
                              uint32_t boundary);
uint64_t ah_replay_most(enum ah_replay_part part);
