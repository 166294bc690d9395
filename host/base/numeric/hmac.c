/* HMAC-SHA256 of parts. */
#include "base/numeric/hmac.h"

#include <string.h>

void ah_hmac_begin(struct ah_hmac *mac, const void *key, size_t bytes)
{
    memset(mac->pad, 0, sizeof mac->pad);
    if (bytes > AH_HMAC_BLOCK) {
        ah_sha256_begin(&mac->inner);
        ah_sha256_add(&mac->inner, key, bytes);
        ah_sha256_end(&mac->inner, mac->pad);
    } else if (bytes) {
        memcpy(mac->pad, key, bytes);
    }
    for (int i = 0; i < AH_HMAC_BLOCK; i++)
        mac->pad[i] ^= 0x36;
    ah_sha256_begin(&mac->inner);
    ah_sha256_add(&mac->inner, mac->pad, AH_HMAC_BLOCK);
}

void ah_hmac_add(struct ah_hmac *mac, const void *bytes, size_t count)
{
    ah_sha256_add(&mac->inner, bytes, count);
}

void ah_hmac_end(struct ah_hmac *mac, unsigned char digest[AH_SHA256_BYTES])
{
    unsigned char inner[AH_SHA256_BYTES];
    ah_sha256_end(&mac->inner, inner);
    for (int i = 0; i < AH_HMAC_BLOCK; i++)
        mac->pad[i] ^= 0x36 ^ 0x5c;
    ah_sha256_begin(&mac->inner);
    ah_sha256_add(&mac->inner, mac->pad, AH_HMAC_BLOCK);
    ah_sha256_add(&mac->inner, inner, sizeof inner);
    ah_sha256_end(&mac->inner, digest);
}

bool ah_hmac_same(const unsigned char a[AH_SHA256_BYTES], const unsigned char b[AH_SHA256_BYTES])
{
    unsigned char differs = 0;
    for (int i = 0; i < AH_SHA256_BYTES; i++)
        differs |= a[i] ^ b[i];
    return !differs;
}
