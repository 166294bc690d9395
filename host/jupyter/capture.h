/* Captured output: pipes in place of stdout and stderr. Each request has its own pair, which processes started during
 * it inherit, so that their text belongs to that request however late it is written. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/process/jupyter.h"

/* Most pairs that are open at once; requests after that share the newest. */
enum { AH_CAPTURE_PAIRS = 32, AH_CAPTURE_TEXT = 1 << 15 };

struct ah_capture_stream {
    int fd; /* the pipe's end to read; -1: at its end */
    size_t count;
    char text[AH_CAPTURE_TEXT]; /* read and not published yet */
};

struct ah_capture_pair {
    struct ah_capture_stream stream[2]; /* stdout, stderr */
    struct ah_jupyter_text header;      /* of the request, owned */
    int64_t since_ns;                   /* when the oldest text here was read; 0: there is none */
};

struct ah_capture {
    struct ah_capture_pair *pair[AH_CAPTURE_PAIRS]; /* the newest last */
    int count;
    void (*publish)(void *context, const struct ah_capture_pair *pair, const char *name, const char *text,
                    size_t bytes);
    void *context;
};

/* Replace stdout and stderr of the process by new pipes; their ends to read are stored in `fd`. AH_EIO: both remain. */
int ah_capture_replace(int fd[2]);

/* Add a pair for a request, with a copy of its header; fds of -1 give the newest pair to the request. The capture owns
 * the fds, and has fewer than AH_CAPTURE_PAIRS pairs before. AH_ENOMEM: the newest pair remains. */
int ah_capture_add(struct ah_capture *capture, const int fd[2], struct ah_jupyter_text header);

/* Read all that the pipes have now; publish texts that are long or older than 30 ms, or all with `now`. Pairs at their
 * end are closed, the newest excepted. */
void ah_capture_read(struct ah_capture *capture, bool now);

/* Milliseconds until a text is to be published; -1: there is none. */
int ah_capture_delay(const struct ah_capture *capture);

void ah_capture_close(struct ah_capture *capture);

/* Write bytes as valid UTF-8 into `out`, which has room for 3 * count: invalid bytes become U+FFFD. Returns the length;
 * *used: the bytes read, without an incomplete character at the end unless `whole`. */
size_t ah_capture_utf8(char *out, const char *bytes, size_t count, bool whole, size_t *used);
