/* Update the state of SHA-256 by blocks of 64 bytes, by the processor's instructions where it has them. For
 * base/numeric/sha256.c alone. */
#ifndef AH_BASE_SHA256_BLOCKS_H
#define AH_BASE_SHA256_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* Add `count` blocks to the state. */
void ah_sha256_add_blocks(uint32_t state[8], const unsigned char *block, size_t count);

/* The same in plain C, on every processor. */
void ah_sha256_add_blocks_plainly(uint32_t state[8], const unsigned char *block, size_t count);

#endif
