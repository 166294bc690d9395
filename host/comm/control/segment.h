/* The allocator of one rank's data segment.
 *
 * After the root group's staging area pieces are allocated and freed in any order and size; free neighbours are merged.
 * Thread rule: any thread of the rank. A piece may be freed only when no peer accesses it any more. */
#pragma once

#include "comm/control/control_block.h"

struct ah_segment;

int ah_segment_open(struct ah_segment **out, struct ah_control_block *control, int rank);
void ah_segment_close(struct ah_segment *segment); /* the memory itself stays mapped with the control block */

/* 64-byte aligned; zeroed on request. AH_ENOMEM when the segment cannot grow. */
int ah_segment_alloc(struct ah_segment *segment, size_t bytes, bool zeroed, void **out);
void ah_segment_free(struct ah_segment *segment, void *memory, size_t bytes);

/* Whole pages of a piece go back to the system, on every rank. */
void ah_segment_release_pages(void *memory, size_t bytes);
/* The same, and bytes outside whole pages are set to zero too. */
void ah_segment_discard(void *memory, size_t bytes);

/* Whole pages of free pieces go back to the system, on every rank. */
void ah_segment_trim(struct ah_segment *segment);

/* Return the buffer's offset in the segment; AH_NO_OFFSET when it is not in the segment. */
uint64_t ah_segment_offset(const struct ah_segment *segment, const void *buffer, size_t bytes);
