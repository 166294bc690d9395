/* SHA-256 (FIPS 180-4), for checking files. Not meant for keys or passwords. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { AH_SHA256_BYTES = 32, AH_SHA256_TEXT = 2 * AH_SHA256_BYTES + 1 };

struct ah_sha256 {
    uint32_t state[8];
    uint64_t count; /* bytes so far */
    unsigned char block[64];
};

/* A hash over any number of parts: begin, add ..., end. */
void ah_sha256_begin(struct ah_sha256 *hash);
void ah_sha256_add(struct ah_sha256 *hash, const void *bytes, size_t count);
void ah_sha256_end(struct ah_sha256 *hash, unsigned char digest[AH_SHA256_BYTES]);

/* Ends the hash and writes it as 64 lower-case hexadecimal digits and a NUL. */
void ah_sha256_end_text(struct ah_sha256 *hash, char text[AH_SHA256_TEXT]);

/* The hash of a whole file as text; AH_EIO names the file. */
int ah_sha256_file(const char *path, char text[AH_SHA256_TEXT]);
