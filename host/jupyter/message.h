/* Messages of the Jupyter protocol as frames: identities of the client, "<IDS|MSG>", signature, header, parent header,
 * metadata, content. */
#pragma once

#include <stdbool.h>

#include "base/process/jupyter.h"
#include "jupyter/connection.h"

enum {
    AH_MESSAGE_FRAMES = 32,      /* of a received message, buffers included */
    AH_MESSAGE_BYTES = 16 << 20, /* of all its frames */
    AH_MESSAGE_HEADER = 1 << 16, /* of header and parent header each */
    AH_MESSAGE_IDENTITY = 255,   /* bytes of an identity */
    AH_MESSAGE_SIGNATURE = 64,   /* hexadecimal digits */
};

/* Write the signature of a message's four parts, in hexadecimal; empty without a key. */
void ah_message_sign(char signature[AH_MESSAGE_SIGNATURE + 1], const struct ah_jupyter_connection *connection,
                     const struct ah_jupyter_text part[4]);

/* Read a message from its frames, into one block of memory that free() frees. AH_EINVAL: the frames are no message, or
 * its signature is wrong; AH_ENOMEM. */
int ah_message_read(struct ah_jupyter_message **out, const struct ah_jupyter_text *frames, int count,
                    const struct ah_jupyter_connection *connection);

/* Iterate over the identities of a route: returns false after the last. `at` begins with 0. */
bool ah_message_identity(struct ah_jupyter_text route, size_t *at, struct ah_jupyter_text *identity);

/* Write the header of a new message of `session` as a text of JSON, which free() frees; NULL: out of memory. */
char *ah_message_header(const char *type, const char *session);

/* Write 32 random hexadecimal digits and a NUL. */
void ah_message_identifier(char text[33]);
