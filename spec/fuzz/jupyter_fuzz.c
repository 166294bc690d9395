/* Fuzz target: a client's frames to a kernel, its connection file, and text that a process writes. The first byte
 * selects one of the three, and whether the frames' signature is made right, or the text is whole; each frame is two
 * bytes of length, then its bytes. A message that is accepted has the parts of its frames, and its identities are those
 * in front of the delimiter. Text becomes valid UTF-8, which stays as it is.
 * sources: host/jupyter/message.c host/jupyter/connection.c host/jupyter/capture.c host/base/numeric/hmac.c
 * sources: host/base/numeric/sha256.c host/base/numeric/sha256_blocks.c host/base/status/status.c
 * sources: host/base/trace/time.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "jupyter/capture.h"
#include "jupyter/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check_message(const struct ah_jupyter_message *message, const struct ah_jupyter_text *frames, int count)
{
    struct ah_jupyter_text identity;
    int i = 0;
    if (!*message->type || memchr(message->type, 0, sizeof message->type) == NULL)
        abort();
    for (size_t at = 0; ah_message_identity(message->route, &at, &identity); i++)
        if (i >= count || identity.count != frames[i].count || memcmp(identity.bytes, frames[i].bytes, identity.count))
            abort();
    if (count - i < 6 || message->content.count != frames[i + 5].count)
        abort();
}

static void read_frames(const uint8_t *bytes, size_t count, bool sign)
{
    static const struct ah_jupyter_connection connection = {.key = "key", .key_bytes = 3};
    struct ah_jupyter_text frames[2 * AH_MESSAGE_FRAMES];
    struct ah_jupyter_message *message = NULL;
    char signature[AH_MESSAGE_SIGNATURE + 1];
    int frame = 0;
    for (size_t at = 0; at + 2 <= count && frame < 2 * AH_MESSAGE_FRAMES; frame++) {
        size_t length = bytes[at] | (size_t)bytes[at + 1] << 8;
        at += 2;
        length = length < count - at ? length : count - at;
        frames[frame] = (struct ah_jupyter_text){(const char *)bytes + at, length};
        at += length;
    }
    for (int i = 0; sign && i + 6 <= frame; i++)
        if (frames[i].count == 9 && !memcmp(frames[i].bytes, "<IDS|MSG>", 9)) {
            ah_message_sign(signature, &connection, frames + i + 2);
            frames[i + 1] = (struct ah_jupyter_text){signature, AH_MESSAGE_SIGNATURE};
            break;
        }
    if (ah_message_read(&message, frames, frame, &connection) == 0) {
        if (!sign)
            abort(); /* a signature was guessed */
        check_message(message, frames, frame);
    } else if (!*ah_error_text()) {
        abort();
    }
    free(message);
}

static void read_text(const uint8_t *bytes, size_t count, bool whole)
{
    char *given = malloc(count + 1), *text = malloc(3 * count + 1), *again = malloc(9 * count + 1);
    size_t used, used_again;
    if (!given || !text || !again)
        abort();
    memcpy(given, bytes, count);
    size_t length = ah_capture_utf8(text, given, count, whole, &used);
    if (used > count || (whole && used < count) || count - used > 3 || length > 3 * used)
        abort();
    if (ah_capture_utf8(again, text, length, true, &used_again) != length || memcmp(again, text, length))
        abort();
    free(given);
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_jupyter_connection connection;
    if (!count)
        return 0;
    if (bytes[0] & 4)
        read_text(bytes + 1, count - 1, bytes[0] & 1);
    else if (bytes[0] & 2)
        ah_connection_parse(&connection, (const char *)bytes + 1, count - 1);
    else
        read_frames(bytes + 1, count - 1, bytes[0] & 1);
    return 0;
}
