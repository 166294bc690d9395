#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/events.h"

/* A file of the records that are added. */
struct file {
    unsigned char bytes[1024];
    size_t count;
};

static void add_record(struct file *file, const void *content, size_t count)
{
    unsigned char head[AH_RECORD_HEAD], foot[AH_RECORD_FOOT];
    ah_record_frame(head, foot, content, count);
    memcpy(file->bytes + file->count, head, sizeof head);
    memcpy(file->bytes + file->count + sizeof head, content, count);
    memcpy(file->bytes + file->count + sizeof head + count, foot, sizeof foot);
    file->count += sizeof head + count + sizeof foot;
}

/* A field of bytes, or one of a number. */
static size_t put_bytes(unsigned char *to, unsigned number, const void *bytes, size_t count)
{
    size_t at = ah_protobuf_put(to, number, AH_PROTOBUF_BYTES, count);
    memcpy(to + at, bytes, count);
    return at + count;
}

static void add_scalar(struct file *file, int64_t step, const char *tag, float number)
{
    unsigned char value[64], summary[96], event[160];
    size_t at = put_bytes(value, 1, tag, strlen(tag));
    at += ah_protobuf_put(value + at, 2, AH_PROTOBUF_FIXED32, ah_protobuf_float(number));
    size_t inner = put_bytes(summary, 1, value, at);
    at = ah_protobuf_put(event, 1, AH_PROTOBUF_FIXED64, ah_protobuf_double(1.5));
    at += ah_protobuf_put(event + at, 2, AH_PROTOBUF_VARINT, (uint64_t)step);
    at += put_bytes(event + at, 5, summary, inner);
    add_record(file, event, at);
}

AH_TEST(events_checksum_is_crc32c)
{
    unsigned char zeros[32] = {0};
    CHECK(ah_crc32c(zeros, sizeof zeros) == 0x8a9136aa);
    CHECK(ah_crc32c_masked("\x1a\x11" "CRC test, one two", 19) == 0x5794d08a);
}

AH_TEST(events_read_what_was_written)
{
    struct file file = {.count = 0};
    struct ah_event event;
    add_scalar(&file, 3, "loss", 0.25f);
    add_scalar(&file, -1, "accuracy", 2);
    struct ah_events events = {.bytes = file.bytes, .count = file.count};
    REQUIRE(ah_events_next(&events, &event) == 1);
    CHECK(event.step == 3 && event.value == 0.25 && event.wall_time == 1.5 && event.tag_length == 4);
    CHECK(!memcmp(event.tag, "loss", 4) && !event.restart);
    REQUIRE(ah_events_next(&events, &event) == 1);
    CHECK(event.step == -1 && event.value == 2 && event.tag_length == 8);
    CHECK(ah_events_next(&events, &event) == 0);
}

AH_TEST(events_treat_a_truncated_record_as_one_that_is_being_written)
{
    struct file file = {.count = 0};
    add_scalar(&file, 1, "loss", 1);
    size_t whole = file.count;
    add_scalar(&file, 2, "loss", 2);
    for (size_t count = 0; count <= file.count; count++) {
        unsigned char *copy = malloc(count + 1); /* a separate block: its end is watched */
        struct ah_events events = {.bytes = copy, .count = count};
        struct ah_event event;
        int found = 0, status;
        REQUIRE(copy);
        memcpy(copy, file.bytes, count);
        while ((status = ah_events_next(&events, &event)) > 0)
            found++;
        CHECK(status == 0);
        CHECK(found == (count >= whole) + (count == file.count));
        free(copy);
    }
}

AH_TEST(events_name_the_place_of_damage)
{
    struct file file = {.count = 0};
    add_scalar(&file, 1, "loss", 1);
    size_t whole = file.count;
    add_scalar(&file, 2, "loss", 2);
    for (size_t at = 0; at < file.count; at++) {
        struct ah_events events = {.bytes = file.bytes, .count = file.count};
        struct ah_event event;
        int found = 0, status;
        file.bytes[at] ^= 0x10;
        while ((status = ah_events_next(&events, &event)) > 0)
            found++;
        CHECK(status == AH_EIO);
        CHECK(found == (at >= whole));
        CHECK(ah_events_next(&events, &event) == 0); /* nothing more is to be had */
        file.bytes[at] ^= 0x10;
    }
}

AH_TEST(events_know_utf8)
{
    static const char *const good[] = {"", "loss", "\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80", "\xc3", "a\xc0\xaf", "\xe2\x82",
                                      "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(ah_protobuf_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!ah_protobuf_is_utf8(bad[i], strlen(bad[i])));
    CHECK(ah_protobuf_is_utf8("a\0b", 3));
}

AH_TEST(events_refuse_a_record_that_is_no_message)
{
    struct file file = {.count = 0};
    struct ah_event event;
    add_record(&file, "\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10); /* a summary longer than all there is */
    struct ah_events events = {.bytes = file.bytes, .count = file.count};
    CHECK(ah_events_next(&events, &event) == AH_EIO);
    CHECK(strstr(ah_error_text(), "are left") != NULL);
}
