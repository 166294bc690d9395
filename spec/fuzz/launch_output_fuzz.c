/* Fuzz target: the ranks' output, in any pieces and at any times, in the launcher. Each piece is rank, pause
 * and length, one byte each, then the text; a length of 255 ends the rank.
 * sources: host/cli/output/launch_output.c host/cli/base/lines.c host/cli/output/output_writer.c
 * sources: host/base/memory/array.c host/base/status/status.c host/base/trace/time.c */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/output/launch_output.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static int writer = -1;
    if (writer < 0)
        writer = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (count < 2)
        return 0;
    int ranks = 1 + bytes[0] % 5;
    struct ah_output *output;
    if (ah_output_open(&output, (int[]){writer, -1}, (bool[]){bytes[1] & 1, false}, ranks) < 0)
        abort();
    int64_t now = 0;
    for (size_t at = 2; at + 3 <= count;) {
        int rank = bytes[at] % ranks;
        now += bytes[at + 1] * INT64_C(1000000);
        size_t length = bytes[at + 2];
        at += 3;
        if (length == 255) {
            ah_output_end(output, 0, rank, now);
        } else {
            length = length < count - at ? length : count - at;
            ah_output_feed(output, 0, rank, (const char *)bytes + at, length, now);
            at += length;
        }
        int64_t due = ah_output_flush(output, now);
        if (due >= 0 && due <= now)
            abort(); /* text that is due now must have been written */
    }
    ah_output_close(output);
    return 0;
}
