/* Protocol buffers as bytes: the fields of a message, one after the other, without a schema. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ah_protobuf_type {
    AH_PROTOBUF_VARINT = 0,
    AH_PROTOBUF_FIXED64 = 1,
    AH_PROTOBUF_BYTES = 2,
    AH_PROTOBUF_FIXED32 = 5
};

struct ah_protobuf {
    const unsigned char *at, *end;
};

struct ah_protobuf_field {
    uint64_t number;
    enum ah_protobuf_type type;
    uint64_t value;       /* a varint, or the bits of a fixed field */
    struct ah_protobuf bytes; /* of AH_PROTOBUF_BYTES: a text, or a nested message; borrowed */
};

/* The next field: 1, 0 at the end of the message, AH_EIO when it is damaged (groups count as that). */
int ah_protobuf_next(struct ah_protobuf *message, struct ah_protobuf_field *out);

/* A varint that is not a field: of a packed list. As ah_protobuf_next. */
int ah_protobuf_varint(struct ah_protobuf *message, uint64_t *out);

/* Write a field, or for AH_PROTOBUF_BYTES its header (tag and length `value`), which its bytes follow. Returns the
 * bytes written, at most AH_TRANSPORT_MOST. */
enum { AH_TRANSPORT_MOST = 20 };
size_t ah_protobuf_put(unsigned char *to, unsigned number, enum ah_protobuf_type type, uint64_t value);

/* Is a text UTF-8, as the format asks for in fields of texts? (RFC 3629: no surrogates, no longer forms.) */
bool ah_protobuf_is_utf8(const void *text, size_t count);

/* Bits of floating-point fields, and back. */
uint64_t ah_protobuf_double(double value);
uint64_t ah_protobuf_float(float value);
double ah_protobuf_to_double(uint64_t bits);
float ah_protobuf_to_float(uint64_t bits);

/* `count` bytes at `at`, the lowest first, as one number. */
uint64_t ah_protobuf_little(const unsigned char *at, int count);
void ah_protobuf_put_little(unsigned char *to, uint64_t value, int count);
