/* HMAC-SHA256 (RFC 2104): signatures of messages by a shared secret. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/numeric/sha256.h"

enum { AH_HMAC_BLOCK = 64 };

struct ah_hmac {
    struct ah_sha256 inner;
    unsigned char pad[AH_HMAC_BLOCK];
};

/* A signature over any number of parts: begin, add ..., end. */
void ah_hmac_begin(struct ah_hmac *mac, const void *key, size_t bytes);
void ah_hmac_add(struct ah_hmac *mac, const void *bytes, size_t count);
void ah_hmac_end(struct ah_hmac *mac, unsigned char digest[AH_SHA256_BYTES]);

/* Compare two digests in constant time, so that the duration does not reveal the first difference. */
bool ah_hmac_same(const unsigned char a[AH_SHA256_BYTES], const unsigned char b[AH_SHA256_BYTES]);
