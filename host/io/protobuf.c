/* The wire format of protocol buffers: a key (number and type), then a varint, 4 or 8 bytes, or a counted text. Every
 * length is checked against the rest before it is used. */
#include "io/protobuf.h"

#include <string.h>

#include "base/status/printable.h"
#include "base/status/status.h"

uint64_t ah_protobuf_little(const unsigned char *at, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void ah_protobuf_put_little(unsigned char *to, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

int ah_protobuf_varint(struct ah_protobuf *message, uint64_t *out)
{
    uint64_t value = 0;
    if (message->at == message->end)
        return 0;
    for (int shift = 0; shift < 64 && message->at < message->end; shift += 7) {
        unsigned char byte = *message->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return 1;
        }
    }
    return ah_fail(AH_EIO, "a number without end");
}

static int protobuf_take(struct ah_protobuf *message, uint64_t count, struct ah_protobuf *out)
{
    if (count > (uint64_t)(message->end - message->at))
        return ah_fail(AH_EIO, "a field of %llu bytes where %td are left", (unsigned long long)count,
                       message->end - message->at);
    *out = (struct ah_protobuf){message->at, message->at + count};
    message->at += count;
    return 1;
}

int ah_protobuf_next(struct ah_protobuf *message, struct ah_protobuf_field *out)
{
    uint64_t key = 0, length = 0;
    int status = ah_protobuf_varint(message, &key);
    if (status <= 0)
        return status;
    *out = (struct ah_protobuf_field){.number = key >> 3, .type = (enum ah_protobuf_type)(key & 7)};
    switch (out->type) {
    case AH_PROTOBUF_VARINT:
        status = ah_protobuf_varint(message, &out->value);
        break;
    case AH_PROTOBUF_BYTES:
        status = ah_protobuf_varint(message, &length);
        return status > 0 ? protobuf_take(message, length, &out->bytes) : status < 0 ? status :
            ah_fail(AH_EIO, "a cut field");
    case AH_PROTOBUF_FIXED64:
    case AH_PROTOBUF_FIXED32:
        length = out->type == AH_PROTOBUF_FIXED64 ? 8 : 4;
        AH_TRY(protobuf_take(message, length, &out->bytes));
        out->value = ah_protobuf_little(out->bytes.at, (int)length);
        return 1;
    default:
        return ah_fail(AH_EIO, "a field of type %d", (int)(key & 7));
    }
    return status ? status : ah_fail(AH_EIO, "a cut field");
}

static size_t put_varint(unsigned char *to, uint64_t value)
{
    size_t count = 0;
    for (; value >= 0x80; value >>= 7)
        to[count++] = (unsigned char)(value | 0x80);
    to[count++] = (unsigned char)value;
    return count;
}

size_t ah_protobuf_put(unsigned char *to, unsigned number, enum ah_protobuf_type type, uint64_t value)
{
    size_t count = put_varint(to, (uint64_t)number << 3 | type);
    if (type == AH_PROTOBUF_VARINT || type == AH_PROTOBUF_BYTES)
        return count + put_varint(to + count, value);
    int size = type == AH_PROTOBUF_FIXED64 ? 8 : 4;
    ah_protobuf_put_little(to + count, value, size);
    return count + (size_t)size;
}

bool ah_protobuf_is_utf8(const void *text, size_t count)
{
    const char *at = text, *end = at + count;
    while (at < end) {
        int size = ah_utf8_length(at, (size_t)(end - at));
        if (!size)
            return false;
        at += size;
    }
    return true;
}

uint64_t ah_protobuf_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint64_t ah_protobuf_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double ah_protobuf_to_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float ah_protobuf_to_float(uint64_t bits)
{
    uint32_t half = (uint32_t)bits;
    float value;
    memcpy(&value, &half, sizeof value);
    return value;
}
