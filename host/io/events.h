/* TensorBoard's event files: records framed by lengths and checksums, each an event in protocol buffers. The reader
 * returns scalars, of the old and of the new form; the writer frames contents made by the caller
 * (lua/accelhost/track/messages.lua). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/protobuf.h"

enum { AH_RECORD_HEAD = 12, AH_RECORD_FOOT = 4 };

/* CRC-32C, and as records hold it: turned and shifted, so that a sum of sums is not near a sum. */
uint32_t ah_crc32c(const void *bytes, size_t count);
uint32_t ah_crc32c_masked(const void *bytes, size_t count);

/* Write the header and the footer of a record's content. */
void ah_record_frame(unsigned char head[AH_RECORD_HEAD], unsigned char foot[AH_RECORD_FOOT], const void *content,
                     size_t count);

/* A file that is read: bytes that stay where they are meanwhile. Set bytes and count, the rest to 0. */
struct ah_events {
    const unsigned char *bytes;
    size_t count, at; /* at: end of the last complete record read */
    struct ah_protobuf summary;
    double wall_time;
    int64_t step;
};

struct ah_event {
    bool restart;       /* no scalar: a run was resumed at `step`; earlier events from that step on are void */
    double wall_time;   /* seconds since 1970 */
    int64_t step;
    const char *tag;    /* not ended by 0; borrowed */
    size_t tag_length;
    double value;
};

/* The next event: 1, 0 at the end (a record that is cut short is one that is being written), AH_EIO when the file is
 * damaged or none of events; then nothing more is to be had. */
int ah_events_next(struct ah_events *events, struct ah_event *out);
