/* Fuzz target: an event file in memory. Whatever the bytes are, the reader returns events whose tags are inside the
 * file, and ends; the checksums are set right first, or nothing would get past them.
 * sources: host/io/events.c host/io/protobuf.c host/base/status/status.c */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/events.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void set_checksums(uint8_t *bytes, size_t count)
{
    size_t at = 0;
    while (count - at >= AH_RECORD_HEAD + AH_RECORD_FOOT) {
        uint64_t length = ah_protobuf_little(bytes + at, 8) % (count - at - AH_RECORD_HEAD - AH_RECORD_FOOT + 1);
        uint8_t *content = bytes + at + AH_RECORD_HEAD;
        ah_protobuf_put_little(bytes + at, length, 8);
        ah_record_frame(bytes + at, content + length, content, length);
        at += AH_RECORD_HEAD + length + AH_RECORD_FOOT;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + 1); /* a separate block: its end is watched */
    if (!copy)
        return 0;
    memcpy(copy, bytes, count);
    for (int pass = 0; pass < 2; pass++) {
        struct ah_events events = {.bytes = copy, .count = count};
        struct ah_event event;
        int status;
        unsigned sum = 0;
        while ((status = ah_events_next(&events, &event)) > 0)
            for (size_t i = 0; i < event.tag_length; i++)
                sum += (unsigned char)event.tag[i];
        /* The sum only makes every byte of the tags be read. */
        if ((status < 0 && !*ah_error_text()) || sum == UINT_MAX)
            abort();
        set_checksums(copy, count);
    }
    free(copy);
    return 0;
}
