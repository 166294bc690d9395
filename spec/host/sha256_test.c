#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/numeric/hmac.h"
#include "base/numeric/sha256.h"
#include "base/numeric/sha256_blocks.h"

static const char *hash_of(const void *bytes, size_t count, size_t part)
{
    static char text[AH_SHA256_TEXT];
    struct ah_sha256 hash;
    ah_sha256_begin(&hash);
    for (size_t at = 0; at < count; at += part)
        ah_sha256_add(&hash, (const char *)bytes + at, count - at < part ? count - at : part);
    ah_sha256_end_text(&hash, text);
    return text;
}

/* The examples of FIPS 180-4. */
AH_TEST(sha256_returns_the_published_values)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    CHECK(!strcmp(hash_of("", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    CHECK(!strcmp(hash_of("abc", 3, 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    CHECK(!strcmp(hash_of(two_blocks, 56, 56), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
    char *million = malloc(1000000);
    REQUIRE(million);
    memset(million, 'a', 1000000);
    for (size_t part = 1; part < 200; part = 2 * part + 1)
        CHECK(!strcmp(hash_of(million, 1000000, part * 37),
                      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
    free(million);
}

AH_TEST(sha256_reads_files)
{
    char path[] = "/tmp/accelhost-sha256-XXXXXX", text[AH_SHA256_TEXT];
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    REQUIRE(write(file, "abc", 3) == 3);
    close(file);
    CHECK_OK(ah_sha256_file(path, text));
    CHECK(!strcmp(text, hash_of("abc", 3, 1)));
    unlink(path);
    CHECK_FAILS(ah_sha256_file(path, text), AH_EIO, "cannot open");
}

/* The processor's instructions against plain C. */
AH_TEST(sha256_is_the_same_by_instructions_and_by_steps)
{
    unsigned char bytes[64 * 9];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t count = 0; count < 10; count++) {
        uint32_t fast[8] = {1, 2, 3, 4, 5, 6, 7, 8}, plain[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        ah_sha256_add_blocks(fast, bytes, count);
        ah_sha256_add_blocks_plainly(plain, bytes, count);
        CHECK(!memcmp(fast, plain, sizeof fast));
    }
}

/* RFC 4231, test cases 2 and 6. */
AH_TEST(hmac_returns_the_published_values)
{
    static const unsigned char expected[2][4] = {{0x5b, 0xdc, 0xc1, 0x46}, {0x60, 0xe4, 0x31, 0x59}};
    static const char text[] = "what do ya want for nothing?", larger[] = "Test Using Larger Than Block-Size Key - "
                                                                        "Hash Key First";
    unsigned char digest[AH_SHA256_BYTES], key[131];
    struct ah_hmac mac;
    ah_hmac_begin(&mac, "Jefe", 4);
    ah_hmac_add(&mac, text, 10);
    ah_hmac_add(&mac, text + 10, strlen(text) - 10);
    ah_hmac_end(&mac, digest);
    CHECK(!memcmp(digest, expected[0], 4));
    memset(key, 0xaa, sizeof key);
    ah_hmac_begin(&mac, key, sizeof key);
    ah_hmac_add(&mac, larger, strlen(larger));
    ah_hmac_end(&mac, digest);
    CHECK(!memcmp(digest, expected[1], 4));
    CHECK(ah_hmac_same(digest, digest) && !ah_hmac_same(digest, key));
}
