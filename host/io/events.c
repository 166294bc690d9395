/* Event files. A record is 8 bytes of length, their checksum, the content, its checksum. The numbers of fields are
 * those of TensorBoard's event.proto, summary.proto and tensor.proto; fields that are not known are passed over. */
#include "io/events.h"

#include <string.h>

#include "base/status/status.h"

/* Four bits at a time, by the reflected polynomial 0x82f63b78. */
uint32_t ah_crc32c(const void *bytes, size_t count)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const unsigned char *at = bytes;
    uint32_t sum = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        sum ^= at[i];
        sum = sum >> 4 ^ table[sum & 15];
        sum = sum >> 4 ^ table[sum & 15];
    }
    return ~sum;
}

uint32_t ah_crc32c_masked(const void *bytes, size_t count)
{
    uint32_t sum = ah_crc32c(bytes, count);
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

void ah_record_frame(unsigned char head[AH_RECORD_HEAD], unsigned char foot[AH_RECORD_FOOT], const void *content,
                     size_t count)
{
    ah_protobuf_put_little(head, count, 8);
    ah_protobuf_put_little(head + 8, ah_crc32c_masked(head, 8), 4);
    ah_protobuf_put_little(foot, ah_crc32c_masked(content, count), 4);
}

/* The next record's content. */
static int next_record(struct ah_events *events, struct ah_protobuf *out)
{
    const unsigned char *head = events->bytes + events->at;
    size_t left = events->count - events->at;
    if (left < AH_RECORD_HEAD)
        return 0;
    if (ah_protobuf_little(head + 8, 4) != ah_crc32c_masked(head, 8))
        return ah_fail(AH_EIO, events->at ? "damaged at byte %zu: the checksum of a length is wrong"
                                          : "no event file (byte %zu begins no record)", events->at);
    uint64_t length = ah_protobuf_little(head, 8);
    if (left < AH_RECORD_HEAD + AH_RECORD_FOOT || length > left - AH_RECORD_HEAD - AH_RECORD_FOOT)
        return 0;
    const unsigned char *content = head + AH_RECORD_HEAD;
    if (ah_protobuf_little(content + length, 4) != ah_crc32c_masked(content, length))
        return ah_fail(AH_EIO, "damaged at byte %zu: the checksum of a record is wrong", events->at);
    *out = (struct ah_protobuf){content, content + length};
    events->at += AH_RECORD_HEAD + length + AH_RECORD_FOOT;
    return 1;
}

/* SessionLog: 1 status, of which 1 is START. */
static int is_start(struct ah_protobuf session, bool *out)
{
    struct ah_protobuf_field field;
    int status;
    while ((status = ah_protobuf_next(&session, &field)) > 0)
        if (field.number == 1 && field.type == AH_PROTOBUF_VARINT)
            *out = field.value == 1;
    return status;
}

/* Event: 1 wall_time, 2 step, 5 summary, 7 session_log. 1: it restarts a run. */
static int open_event(struct ah_events *events, struct ah_protobuf event, bool *restart)
{
    struct ah_protobuf_field field;
    int status;
    events->wall_time = 0;
    events->step = 0;
    while ((status = ah_protobuf_next(&event, &field)) > 0) {
        if (field.number == 1 && field.type == AH_PROTOBUF_FIXED64)
            events->wall_time = ah_protobuf_to_double(field.value);
        else if (field.number == 2 && field.type == AH_PROTOBUF_VARINT)
            events->step = (int64_t)field.value;
        else if (field.number == 5 && field.type == AH_PROTOBUF_BYTES)
            events->summary = field.bytes;
        else if (field.number == 7 && field.type == AH_PROTOBUF_BYTES)
            AH_TRY(is_start(field.bytes, restart));
    }
    return status;
}

/* Element types of TensorProto that are read, and their bytes. */
enum { FLOAT = 1, DOUBLE = 2, INT32 = 3, INT64 = 9 };

static int size_of(uint64_t type)
{
    return type == FLOAT || type == INT32 ? 4 : type == DOUBLE || type == INT64 ? 8 : 0;
}

static double events_element(uint64_t type, uint64_t bits)
{
    switch (type) {
    case FLOAT:
        return ah_protobuf_to_float(bits);
    case DOUBLE:
        return ah_protobuf_to_double(bits);
    case INT32:
        return (int32_t)(uint32_t)bits;
    default:
        return (double)(int64_t)bits;
    }
}

/* The one element that a field of TensorProto holds: in tensor_content (4), or in float_val (5), double_val (6),
 * int_val (7), int64_val (10), packed or not. 1: found. */
static int read_element(const struct ah_protobuf_field *field, uint64_t type, double *out)
{
    bool content = field->number == 4, integers = type == INT32 || type == INT64;
    uint64_t value = field->value, home = type == FLOAT ? 5 : type == DOUBLE ? 6 : type == INT32 ? 7 : 10;
    if (!content && field->number != home)
        return 0;
    if (field->type == AH_PROTOBUF_BYTES && !content && integers) {
        struct ah_protobuf list = field->bytes;
        AH_TRY(ah_protobuf_varint(&list, &value));
        if (list.at != list.end)
            return 0;
    } else if (field->type == AH_PROTOBUF_BYTES) {
        if (field->bytes.end - field->bytes.at != size_of(type))
            return 0;
        value = ah_protobuf_little(field->bytes.at, size_of(type));
    } else if (content) {
        return 0;
    }
    *out = events_element(type, value);
    return 1;
}

/* TensorProto: 1 dtype. 1: it holds one number. */
static int read_tensor(struct ah_protobuf tensor, double *out)
{
    struct ah_protobuf fields = tensor;
    struct ah_protobuf_field field;
    uint64_t type = 0;
    int status;
    while ((status = ah_protobuf_next(&fields, &field)) > 0)
        if (field.number == 1 && field.type == AH_PROTOBUF_VARINT)
            type = field.value;
    AH_TRY(status);
    if (!size_of(type))
        return 0;
    while ((status = ah_protobuf_next(&tensor, &field)) > 0) {
        int found = read_element(&field, type, out);
        if (found)
            return found;
    }
    return status;
}

/* Summary.Value: 1 tag, 2 simple_value, 8 tensor. 1: it is a scalar. */
static int read_value(struct ah_protobuf value, struct ah_event *out)
{
    struct ah_protobuf_field field;
    int status, found = 0;
    while ((status = ah_protobuf_next(&value, &field)) > 0) {
        if (field.number == 1 && field.type == AH_PROTOBUF_BYTES) {
            out->tag = (const char *)field.bytes.at;
            out->tag_length = (size_t)(field.bytes.end - field.bytes.at);
        } else if (field.number == 2 && field.type == AH_PROTOBUF_FIXED32) {
            out->value = ah_protobuf_to_float(field.value);
            found = 1;
        } else if (field.number == 8 && field.type == AH_PROTOBUF_BYTES) {
            int one = read_tensor(field.bytes, &out->value);
            AH_TRY(one);
            found = found || one;
        }
    }
    return status < 0 ? status : found && out->tag;
}

static int next_value(struct ah_events *events, struct ah_event *out)
{
    struct ah_protobuf_field field;
    int status;
    while ((status = ah_protobuf_next(&events->summary, &field)) > 0) {
        *out = (struct ah_event){.wall_time = events->wall_time, .step = events->step};
        if (field.number == 1 && field.type == AH_PROTOBUF_BYTES && (status = read_value(field.bytes, out)) != 0)
            return status;
    }
    return status;
}

int ah_events_next(struct ah_events *events, struct ah_event *out)
{
    for (;;) {
        struct ah_protobuf event;
        bool restart = false;
        int status = next_value(events, out);
        if (status == 0)
            status = next_record(events, &event);
        else if (status > 0)
            return status;
        if (status == 0)
            return 0;
        if (status > 0)
            status = open_event(events, event, &restart);
        if (status < 0) {
            events->summary = (struct ah_protobuf){0};
            events->at = events->count;
            return status;
        }
        if (restart) {
            *out = (struct ah_event){.restart = true, .wall_time = events->wall_time, .step = events->step};
            return 1;
        }
    }
}
