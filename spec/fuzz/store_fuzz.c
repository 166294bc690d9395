/* Fuzz target: two clients' bytes to a store's server, in any pieces. The first byte selects the trusted one;
 * each piece is client, pause and length, one byte each, then the bytes.
 * sources: host/comm/store/store_protocol.c host/base/numeric/hmac.c host/base/numeric/sha256.c
 * sources: host/base/numeric/sha256_blocks.c host/base/memory/array.c host/base/status/status.c */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "comm/store/store_protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_store_table table = {0};
    const struct ah_store_options place = {.secret = "secret", .secret_bytes = 6};
    struct ah_store_session session[2] = {{.table = &table, .options = &place}, {.table = &table, .options = &place}};
    bool over[2] = {false, false};
    int64_t now = 0;
    for (int i = 0; i < 2; i++) {
        if (ah_store_greet(&session[i], now) < 0)
            abort();
        session[i].trusted = count && (bytes[0] >> i & 1);
    }
    for (size_t at = 1; at + 3 <= count;) {
        int i = bytes[at] & 1;
        now += bytes[at + 1] * INT64_C(10000000);
        size_t length = bytes[at + 2];
        at += 3;
        length = length < count - at ? length : count - at;
        if (!over[i])
            over[i] = ah_store_feed(&session[i], bytes + at, length, now) < 0;
        if (!over[!i])
            over[!i] = ah_store_resume(&session[!i], now) < 0;
        at += length;
    }
    ah_store_end_session(&session[0], "over");
    ah_store_session_free(&session[0]);
    ah_store_session_free(&session[1]);
    ah_store_table_free(&table);
    return 0;
}
