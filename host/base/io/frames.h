/* Messages over a stream socket between two processes of this program: a length of 4 bytes, then so many.
 *
 * Nothing here waits. What the other side has not taken yet is kept, in order; what has come is kept until it is taken.
 * A length that the other side claims takes no memory before its bytes have come. Once the other side has gone every
 * call but _take and _close gives AH_EPEER. One thread uses a socket. */
#ifndef AH_BASE_FRAMES_H
#define AH_BASE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { AH_FRAME_MOST = 256 << 20 }; /* bytes of a message */

struct ah_frames;

/* `fd` is taken over, on failure too: it will not wait and not pass exec. */
int ah_frames_open(struct ah_frames **out, int fd);
void ah_frames_close(struct ah_frames *frames);
/* What to poll: for POLLIN, and for POLLOUT while bytes are left to send. */
int ah_frames_fd(const struct ah_frames *frames);

/* A message behind what is there; the bytes are copied. AH_EINVAL when there are too many. */
int ah_frames_put(struct ah_frames *frames, const void *bytes, size_t count);
/* Send what the other side takes now. */
int ah_frames_push(struct ah_frames *frames);
bool ah_frames_is_unsent(const struct ah_frames *frames);

/* Read what has come, up to a few megabytes. */
int ah_frames_pull(struct ah_frames *frames);
/* The first message that has come whole: true, and the bytes are the caller's to free. */
bool ah_frames_take(struct ah_frames *frames, char **bytes, size_t *count);

#endif
