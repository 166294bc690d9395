/* The head of a request, as a server on this host reads it: its target and its Host header. */
#pragma once

#include <stddef.h>

enum { AH_HTTP_HEAD = 16384 }; /* bytes of the longest one */

/* Texts in the bytes that were read. */
struct ah_http_head {
    const char *target; /* of a GET, begins with "/" */
    size_t target_bytes;
    const char *host; /* NULL: there is no such header */
    size_t host_bytes;
};

/* Read the head of a request from its first `count` bytes. Returns 1; 0 where the empty line that ends it is not there
 * yet; -1 where the request is no GET of a path, or has a zero byte. */
int ah_http_head_read(struct ah_http_head *out, const char *bytes, size_t count);
