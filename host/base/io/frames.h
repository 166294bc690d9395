/* Messages over a stream socket between two processes of this program: a length of 4 bytes, then that many bytes.
 *
 * No call blocks. Messages that the peer has not received yet are queued in order, received ones until ah_frames_take.
 * Memory is allocated as bytes arrive, not by the length that the peer claims. Once the peer has closed, every call but
 * _take and _close returns AH_EPEER. A socket belongs to one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { AH_FRAME_MOST = 256 << 20 }; /* bytes of a message */

struct ah_frames;

/* Open the stream on `fd`, which becomes non-blocking and close-on-exec. Owns `fd`, on failure too. */
int ah_frames_open(struct ah_frames **out, int fd);
void ah_frames_close(struct ah_frames *frames);
/* Return the descriptor to poll: for POLLIN, and for POLLOUT while bytes are unsent. */
int ah_frames_fd(const struct ah_frames *frames);

/* Queue a message; the bytes are copied. AH_EINVAL for more than AH_FRAME_MOST bytes. */
int ah_frames_put(struct ah_frames *frames, const void *bytes, size_t count);
/* Send as much as the socket accepts now. */
int ah_frames_push(struct ah_frames *frames);
bool ah_frames_is_unsent(const struct ah_frames *frames);

/* Read the bytes that have arrived, up to a few megabytes. */
int ah_frames_pull(struct ah_frames *frames);
/* Remove the first complete message from the queue: true; the caller frees the bytes. False if there is none. */
bool ah_frames_take(struct ah_frames *frames, char **bytes, size_t *count);
