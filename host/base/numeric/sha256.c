/* FIPS 180-4: incomplete blocks are held, whole blocks go to base/numeric/sha256_blocks.c. Own code, because it is as
 * fast as OpenSSL's, which would add 2 ms to the program's start, and kernels need not have a socket for it. */
#include "base/numeric/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/numeric/sha256_blocks.h"
#include "base/status/status.h"

void ah_sha256_begin(struct ah_sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->count = 0;
}

void ah_sha256_add(struct ah_sha256 *hash, const void *bytes, size_t count)
{
    const unsigned char *from = bytes;
    size_t held = hash->count % 64;
    hash->count += count;
    while (count) {
        if (!held && count >= 64) {
            ah_sha256_add_blocks(hash->state, from, count / 64);
            from += count / 64 * 64;
            count %= 64;
            continue;
        }
        size_t part = 64 - held < count ? 64 - held : count;
        memcpy(hash->block + held, from, part);
        from += part;
        count -= part;
        held += part;
        if (held == 64) {
            ah_sha256_add_blocks(hash->state, hash->block, 1);
            held = 0;
        }
    }
}

void ah_sha256_end(struct ah_sha256 *hash, unsigned char digest[AH_SHA256_BYTES])
{
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = hash->count * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    size_t held = hash->count % 64;
    ah_sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    ah_sha256_add(hash, length, 8);
    for (int i = 0; i < AH_SHA256_BYTES; i++)
        digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void ah_sha256_end_text(struct ah_sha256 *hash, char text[AH_SHA256_TEXT])
{
    static const char digit[] = "0123456789abcdef";
    unsigned char digest[AH_SHA256_BYTES];
    ah_sha256_end(hash, digest);
    for (int i = 0; i < AH_SHA256_BYTES; i++) {
        text[2 * i] = digit[digest[i] >> 4];
        text[2 * i + 1] = digit[digest[i] & 15];
    }
    text[2 * AH_SHA256_BYTES] = 0;
}

int ah_sha256_file(const char *path, char text[AH_SHA256_TEXT])
{
    unsigned char part[65536];
    struct ah_sha256 hash;
    size_t got;
    FILE *file = fopen(path, "rb");
    if (!file)
        return ah_fail(AH_EIO, "%s: cannot open: %s", path, strerror(errno));
    ah_sha256_begin(&hash);
    while ((got = fread(part, 1, sizeof part, file)) > 0)
        ah_sha256_add(&hash, part, got);
    int failed = ferror(file);
    fclose(file);
    if (failed)
        return ah_fail(AH_EIO, "%s: cannot read: %s", path, strerror(errno));
    ah_sha256_end_text(&hash, text);
    return 0;
}
