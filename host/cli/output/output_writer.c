/* A growing buffer in front of a descriptor, and the way to write to that kind of descriptor without waiting. What
 * must stay true: no call here blocks, and O_NONBLOCK never reaches a description that this process did not open. */
#include "cli/output/output_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/status.h"

enum { GATHER = 32 * 1024 };

enum way {
    DIRECT,   /* a file, which never waits, or a description with O_NONBLOCK */
    SOCKET,   /* each send says that it does not wait */
    ASK_FIRST /* poll, then no more than fits into any pipe that has room */
};

struct ah_output_writer {
    int fd, opened; /* opened: to be closed here, or -1 */
    enum way way;
    int error;
    char *text;
    size_t begin, end, room; /* of the pending bytes in text */
};

static void choose_way(struct ah_output_writer *sink, int fd)
{
    struct stat info;
    char path[32];
    int flags = fcntl(fd, F_GETFL);
    sink->way = ASK_FIRST;
    if (fstat(fd, &info))
        return;
    if (S_ISREG(info.st_mode) || (flags >= 0 && (flags & O_NONBLOCK))) {
        sink->way = DIRECT;
    } else if (S_ISSOCK(info.st_mode)) {
        sink->way = SOCKET;
    } else {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        sink->opened = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (sink->opened >= 0) {
            sink->fd = sink->opened;
            sink->way = DIRECT;
        }
    }
}

int ah_output_writer_open(struct ah_output_writer **out, int fd)
{
    struct ah_output_writer *sink = calloc(1, sizeof *sink);
    if (!sink)
        return ah_fail(AH_ENOMEM, "out of memory");
    sink->fd = fd;
    sink->opened = -1;
    choose_way(sink, fd);
    *out = sink;
    return 0;
}

void ah_output_writer_close(struct ah_output_writer *sink)
{
    if (!sink)
        return;
    if (sink->opened >= 0)
        close(sink->opened);
    free(sink->text);
    free(sink);
}

static ssize_t put(struct ah_output_writer *sink, const char *text, size_t bytes)
{
    if (sink->way == SOCKET)
        return send(sink->fd, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sink->way == ASK_FIRST) {
        struct pollfd at = {.fd = sink->fd, .events = POLLOUT};
        if (poll(&at, 1, 0) <= 0) {
            errno = EAGAIN;
            return -1;
        }
        bytes = bytes < PIPE_BUF ? bytes : PIPE_BUF;
    }
    return write(sink->fd, text, bytes);
}

void ah_output_writer_push(struct ah_output_writer *sink)
{
    while (sink->begin < sink->end && !sink->error) {
        ssize_t n = put(sink, sink->text + sink->begin, sink->end - sink->begin);
        if (n >= 0)
            sink->begin += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            sink->error = errno;
    }
    sink->begin = sink->end = 0;
}

void ah_output_writer_write(struct ah_output_writer *sink, const char *text, size_t bytes)
{
    if (sink->error || !bytes)
        return;
    if (sink->end + bytes > sink->room && sink->begin) {
        memmove(sink->text, sink->text + sink->begin, sink->end - sink->begin);
        sink->end -= sink->begin;
        sink->begin = 0;
    }
    if (ah_grow(&sink->text, sink->end + bytes, &sink->room, 1) < 0) {
        sink->error = ENOMEM;
        return;
    }
    memcpy(sink->text + sink->end, text, bytes);
    sink->end += bytes;
    if (sink->end - sink->begin >= GATHER)
        ah_output_writer_push(sink);
}

size_t ah_output_writer_pending(const struct ah_output_writer *sink)
{
    return sink->error ? 0 : sink->end - sink->begin;
}

int ah_output_writer_fd(const struct ah_output_writer *sink)
{
    return sink->fd;
}

int ah_output_writer_error(const struct ah_output_writer *sink)
{
    return sink->error;
}
