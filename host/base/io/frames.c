/* Two queues of messages around a socket, and the message that is just arriving. Invariant: `coming` holds as many
 * bytes of it as have been read, and its capacity follows them, not the claimed length. */
#include "base/io/frames.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory/array.h"
#include "base/status/status.h"

enum { HEAD = sizeof(uint32_t), LEAST = 64 * 1024, AT_ONCE = 4 << 20 };

struct message {
    struct message *next;
    size_t count, sent; /* sent counts the head too */
    char *bytes;
};

struct queue {
    struct message *first, **end;
};

struct ah_frames {
    int fd;
    bool closed;
    struct queue out, in;
    unsigned char head[HEAD];
    size_t head_count; /* bytes of `head` that have arrived */
    char *coming;
    size_t count, have, room; /* of `coming` */
};

static void frames_append(struct queue *queue, struct message *message)
{
    message->next = NULL;
    *queue->end = message;
    queue->end = &message->next;
}

static struct message *frames_shift(struct queue *queue)
{
    struct message *message = queue->first;
    if (message) {
        queue->first = message->next;
        if (!queue->first)
            queue->end = &queue->first;
    }
    return message;
}

static void frames_drop(struct message *message)
{
    free(message->bytes);
    free(message);
}

int ah_frames_open(struct ah_frames **out, int fd)
{
    struct ah_frames *frames = calloc(1, sizeof *frames);
    if (!frames) {
        close(fd);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    if (fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC)) {
        int error = errno;
        free(frames);
        close(fd);
        return ah_fail(AH_EIO, "cannot use a channel: %s", strerror(error));
    }
    frames->fd = fd;
    frames->out.end = &frames->out.first;
    frames->in.end = &frames->in.first;
    *out = frames;
    return 0;
}

void ah_frames_close(struct ah_frames *frames)
{
    if (!frames)
        return;
    while (frames->out.first)
        frames_drop(frames_shift(&frames->out));
    while (frames->in.first)
        frames_drop(frames_shift(&frames->in));
    free(frames->coming);
    close(frames->fd);
    free(frames);
}

int ah_frames_fd(const struct ah_frames *frames)
{
    return frames->fd;
}

bool ah_frames_is_unsent(const struct ah_frames *frames)
{
    return frames->out.first && !frames->closed;
}

static int frames_lose(struct ah_frames *frames)
{
    frames->closed = true;
    return ah_fail(AH_EPEER, "the other side has gone");
}

int ah_frames_put(struct ah_frames *frames, const void *bytes, size_t count)
{
    if (frames->closed)
        return frames_lose(frames);
    if (count > AH_FRAME_MOST)
        return ah_fail(AH_EINVAL, "a message has %zu bytes, and %d may be sent at once", count, AH_FRAME_MOST);
    struct message *message = calloc(1, sizeof *message);
    char *copy = malloc(HEAD + count);
    if (!message || !copy) {
        free(message);
        free(copy);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    uint32_t length = (uint32_t)count;
    memcpy(copy, &length, HEAD);
    if (count)
        memcpy(copy + HEAD, bytes, count);
    *message = (struct message){.count = HEAD + count, .bytes = copy};
    frames_append(&frames->out, message);
    return 0;
}

int ah_frames_push(struct ah_frames *frames)
{
    while (!frames->closed && frames->out.first) {
        struct message *message = frames->out.first;
        ssize_t n = send(frames->fd, message->bytes + message->sent, message->count - message->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
            return 0;
        if (n < 0)
            return frames_lose(frames);
        message->sent += (size_t)n;
        if (message->sent == message->count)
            frames_drop(frames_shift(&frames->out));
    }
    return frames->closed ? frames_lose(frames) : 0;
}

/* Read up to `want` bytes: their count, 0 when there are none now. */
static ssize_t frames_receive(struct ah_frames *frames, void *to, size_t want)
{
    for (;;) {
        ssize_t n = recv(frames->fd, to, want, 0);
        if (n > 0)
            return n;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        return frames_lose(frames);
    }
}

/* Queue the arriving message, which is whole. */
static int frames_keep(struct ah_frames *frames)
{
    struct message *message = calloc(1, sizeof *message);
    AH_TRY_MEMORY(message, "out of memory");
    *message = (struct message){.count = frames->count, .bytes = frames->coming};
    frames_append(&frames->in, message);
    frames->coming = NULL;
    frames->head_count = frames->have = frames->room = 0;
    return 0;
}

/* Read one more part; return its bytes, 0 when no more have arrived. */
static ssize_t pull_part(struct ah_frames *frames)
{
    ssize_t n;
    uint32_t length;
    if (frames->head_count < HEAD) {
        AH_TRY(n = frames_receive(frames, frames->head + frames->head_count, HEAD - frames->head_count));
        frames->head_count += (size_t)n;
        if (frames->head_count < HEAD)
            return n;
        memcpy(&length, frames->head, HEAD);
        if (length > AH_FRAME_MOST)
            return ah_fail(AH_EIO, "a message claims to have %u bytes", (unsigned)length);
        frames->count = length;
        if (length == 0)
            AH_TRY(frames_keep(frames));
        return n;
    }
    size_t left = frames->count - frames->have, want = left < LEAST ? left : LEAST;
    AH_TRY(ah_grow(&frames->coming, frames->have + want, &frames->room, 1));
    want = frames->room - frames->have < left ? frames->room - frames->have : left;
    AH_TRY(n = frames_receive(frames, frames->coming + frames->have, want));
    frames->have += (size_t)n;
    if (frames->have == frames->count)
        AH_TRY(frames_keep(frames));
    return n;
}

int ah_frames_pull(struct ah_frames *frames)
{
    size_t total = 0;
    if (frames->closed)
        return frames_lose(frames);
    while (total < AT_ONCE) {
        ssize_t n = pull_part(frames);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return 0;
        total += (size_t)n;
    }
    return 0;
}

bool ah_frames_take(struct ah_frames *frames, char **bytes, size_t *count)
{
    AH_FREED struct message *message = frames_shift(&frames->in);
    if (!message)
        return false;
    *bytes = message->bytes;
    *count = message->count;
    return true;
}
