/* Update the state of SHA-256 by blocks of 64 bytes, by the processor's instructions where it has them. For
 * base/numeric/sha256.c alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
extern const uint32_t ah_sha256_constant[64];

/* Add `count` blocks to the state. */
void ah_sha256_add_blocks(uint32_t state[8], const unsigned char *block, size_t count);

/* The same in plain C, on every processor. */
void ah_sha256_add_blocks_plainly(uint32_t state[8], const unsigned char *block, size_t count);

/* The same by the processor's instructions, where it has them; a file for each architecture. */
bool ah_sha256_has_instructions(void);
void ah_sha256_add_blocks_natively(uint32_t state[8], const unsigned char *block, size_t count);
