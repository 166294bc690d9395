/* Large blocks in regions of address space: best fit, and freed neighbours are merged. Memory that a phase of a program
 * has freed serves blocks of any size in the next, which lists by size class do not allow. Blocks of those lists have
 * separate regions, for the huge pages: they do not divide the gaps of large blocks. Callers hold one lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { AH_REGION_UNIT = 64 << 10 }; /* sizes of large blocks are multiples of it */

/* Return a block, aligned to AH_REGION_UNIT, of memory that was freed before; NULL when no gap of it holds `bytes`. */
void *ah_region_reuse(size_t bytes);

/* Return a block of memory of which some was never written, or was returned to the system; NULL when the system refuses
 * it. */
void *ah_region_grow(size_t bytes);

/* The same of a block of a size class: a multiple of the page size, to which it is aligned. */
void *ah_region_grow_listed(size_t bytes);

/* Is the block one of these? */
bool ah_region_has(const void *block);

/* Free a block; `bytes` as then. */
void ah_region_free(void *block, size_t bytes);

/* Return the memory of free blocks to the system. */
void ah_region_trim(void);

/* The bytes of free blocks whose memory the system has not got back. */
size_t ah_region_cached(void);
