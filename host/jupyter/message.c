/* Frames and messages. Lengths are checked before copies, the signature before any content is read. */
#include "jupyter/message.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/numeric/hmac.h"
#include "base/status/status.h"

static const char delimiter[] = "<IDS|MSG>";

static void message_digest(unsigned char digest[AH_SHA256_BYTES], const struct ah_jupyter_connection *connection,
                           const struct ah_jupyter_text part[4])
{
    struct ah_hmac mac;
    ah_hmac_begin(&mac, connection->key, connection->key_bytes);
    for (int i = 0; i < 4; i++)
        ah_hmac_add(&mac, part[i].bytes, part[i].count);
    ah_hmac_end(&mac, digest);
}

void ah_message_sign(char signature[AH_MESSAGE_SIGNATURE + 1], const struct ah_jupyter_connection *connection,
                     const struct ah_jupyter_text part[4])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[AH_SHA256_BYTES];
    signature[0] = 0;
    if (!connection->key_bytes)
        return;
    message_digest(digest, connection, part);
    for (int i = 0; i < AH_SHA256_BYTES; i++) {
        signature[2 * i] = digits[digest[i] >> 4];
        signature[2 * i + 1] = digits[digest[i] & 15];
    }
    signature[AH_MESSAGE_SIGNATURE] = 0;
}

static int message_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool message_is_signed(struct ah_jupyter_text signature, const struct ah_jupyter_connection *connection,
                              const struct ah_jupyter_text part[4])
{
    unsigned char digest[AH_SHA256_BYTES], claimed[AH_SHA256_BYTES];
    if (!connection->key_bytes)
        return true;
    if (signature.count != AH_MESSAGE_SIGNATURE)
        return false;
    for (int i = 0; i < AH_SHA256_BYTES; i++) {
        int high = message_digit(signature.bytes[2 * i]), low = message_digit(signature.bytes[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        claimed[i] = (unsigned char)(16 * high + low);
    }
    message_digest(digest, connection, part);
    return ah_hmac_same(digest, claimed);
}

/* The place of the delimiter; -1 without one. */
static int message_delimiter(const struct ah_jupyter_text *frames, int count)
{
    for (int i = 0; i < count; i++)
        if (frames[i].count == sizeof delimiter - 1 && !memcmp(frames[i].bytes, delimiter, sizeof delimiter - 1))
            return i;
    return -1;
}

/* Store the header's msg_type. */
static int message_type(char type[AH_JUPYTER_TYPE], struct ah_jupyter_text header)
{
    json_t *object = json_loadb(header.bytes, header.count, 0, NULL);
    const json_t *value = json_object_get(object, "msg_type"), *id = json_object_get(object, "msg_id");
    const char *text = json_string_value(value);
    int status = text && *text && json_string_length(value) < AH_JUPYTER_TYPE && json_is_string(id) ? 0 : AH_EINVAL;
    if (status == 0)
        snprintf(type, AH_JUPYTER_TYPE, "%s", text);
    json_decref(object);
    return status < 0 ? ah_fail(status, "message: expected a header with msg_id and msg_type") : 0;
}

static int message_check(const struct ah_jupyter_text *frames, int count, int at)
{
    size_t bytes = 0;
    if (at < 0 || count - at < 6)
        return ah_fail(AH_EINVAL, "message: expected six frames from <IDS|MSG> on");
    if (count > AH_MESSAGE_FRAMES)
        return ah_fail(AH_EINVAL, "message: over %d frames", AH_MESSAGE_FRAMES);
    for (int i = 0; i < count; i++) {
        if (frames[i].count > AH_MESSAGE_BYTES || (i < at && frames[i].count > AH_MESSAGE_IDENTITY) ||
            ((i == at + 2 || i == at + 3) && frames[i].count > AH_MESSAGE_HEADER))
            return ah_fail(AH_EINVAL, "message: frame %d is too long: %zu bytes", i, frames[i].count);
        bytes += frames[i].count;
    }
    if (bytes > AH_MESSAGE_BYTES)
        return ah_fail(AH_EINVAL, "message: over %d bytes", AH_MESSAGE_BYTES);
    return 0;
}

static struct ah_jupyter_text message_copy(char **to, struct ah_jupyter_text from)
{
    struct ah_jupyter_text copy = {*to, from.count};
    memcpy(*to, from.bytes, from.count);
    (*to)[from.count] = 0;
    *to += from.count + 1;
    return copy;
}

int ah_message_read(struct ah_jupyter_message **out, const struct ah_jupyter_text *frames, int count,
                    const struct ah_jupyter_connection *connection)
{
    int at = message_delimiter(frames, count);
    AH_TRY(message_check(frames, count, at));
    const struct ah_jupyter_text *part = frames + at + 2;
    if (!message_is_signed(frames[at + 1], connection, part))
        return ah_fail(AH_EINVAL, "message: the signature is wrong");
    char type[AH_JUPYTER_TYPE];
    AH_TRY(message_type(type, part[0]));
    size_t bytes = sizeof **out, route = 0;
    for (int i = 0; i < at; i++)
        route += 1 + frames[i].count;
    for (int i = 0; i < 4; i++)
        bytes += part[i].count + 1;
    struct ah_jupyter_message *message = malloc(bytes + route);
    AH_TRY_MEMORY(message, "out of memory");
    *message = (struct ah_jupyter_message){.route.count = route};
    memcpy(message->type, type, sizeof type);
    char *to = (char *)(message + 1);
    message->header = message_copy(&to, part[0]);
    message->parent = message_copy(&to, part[1]);
    message->metadata = message_copy(&to, part[2]);
    message->content = message_copy(&to, part[3]);
    message->route.bytes = to;
    for (int i = 0; i < at; i++) {
        *to++ = (char)(unsigned char)frames[i].count;
        memcpy(to, frames[i].bytes, frames[i].count);
        to += frames[i].count;
    }
    *out = message;
    return 0;
}

bool ah_message_identity(struct ah_jupyter_text route, size_t *at, struct ah_jupyter_text *identity)
{
    if (*at >= route.count)
        return false;
    size_t count = (unsigned char)route.bytes[*at], left = route.count - *at - 1;
    *identity = (struct ah_jupyter_text){route.bytes + *at + 1, count < left ? count : left};
    *at += 1 + identity->count;
    return true;
}

void ah_message_identifier(char text[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, &now.tv_nsec, sizeof now.tv_nsec);
    }
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

char *ah_message_header(const char *type, const char *session)
{
    char id[33], date[40], rest[16];
    struct timespec now;
    struct tm parts;
    ah_message_identifier(id);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(rest, sizeof rest, ".%06ldZ", now.tv_nsec / 1000 % 1000000);
    strncat(date, rest, sizeof date - strlen(date) - 1);
    json_t *header = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", id, "session", session, "username", "kernel",
                               "date", date, "msg_type", type, "version", "5.4");
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    return text;
}
