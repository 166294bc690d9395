/* A growing buffer in front of a descriptor, and the way to write to that kind of descriptor without waiting.
 * Invariant: no call here blocks, and O_NONBLOCK never reaches a description that this process did not open. */
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

#include "base/memory/array.h"
#include "base/status/status.h"

enum { GATHER = 32 * 1024 };

enum way {
    DIRECT,   /* a file, which never waits, or a description with O_NONBLOCK */
    SOCKET,   /* each send has MSG_DONTWAIT */
    ASK_FIRST /* poll, then no more than fits into any pipe that has room */
};

struct ah_output_writer {
    int fd, opened; /* opened: to be closed here, or -1 */
    enum way way;
    int error;
    char *text;
    size_t begin, end, room; /* of the pending bytes in text */
};

static void choose_way(struct ah_output_writer *writer, int fd)
{
    struct stat info;
    char path[32];
    int flags = fcntl(fd, F_GETFL);
    writer->way = ASK_FIRST;
    if (fstat(fd, &info))
        return;
    if (S_ISREG(info.st_mode) || (flags >= 0 && (flags & O_NONBLOCK))) {
        writer->way = DIRECT;
    } else if (S_ISSOCK(info.st_mode)) {
        writer->way = SOCKET;
    } else {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        writer->opened = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (writer->opened >= 0) {
            writer->fd = writer->opened;
            writer->way = DIRECT;
        }
    }
}

int ah_output_writer_open(struct ah_output_writer **out, int fd)
{
    struct ah_output_writer *writer = calloc(1, sizeof *writer);
    AH_TRY_MEMORY(writer, "out of memory");
    writer->fd = fd;
    writer->opened = -1;
    choose_way(writer, fd);
    *out = writer;
    return 0;
}

void ah_output_writer_close(struct ah_output_writer *writer)
{
    if (!writer)
        return;
    if (writer->opened >= 0)
        close(writer->opened);
    free(writer->text);
    free(writer);
}

static ssize_t output_writer_put(struct ah_output_writer *writer, const char *text, size_t bytes)
{
    if (writer->way == SOCKET)
        return send(writer->fd, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (writer->way == ASK_FIRST) {
        struct pollfd at = {.fd = writer->fd, .events = POLLOUT};
        if (poll(&at, 1, 0) <= 0) {
            errno = EAGAIN;
            return -1;
        }
        bytes = bytes < PIPE_BUF ? bytes : PIPE_BUF;
    }
    return write(writer->fd, text, bytes);
}

void ah_output_writer_push(struct ah_output_writer *writer)
{
    while (writer->begin < writer->end && !writer->error) {
        ssize_t n = output_writer_put(writer, writer->text + writer->begin, writer->end - writer->begin);
        if (n >= 0)
            writer->begin += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            writer->error = errno;
    }
    writer->begin = writer->end = 0;
}

void ah_output_writer_write(struct ah_output_writer *writer, const char *text, size_t bytes)
{
    if (writer->error || !bytes)
        return;
    if (writer->end + bytes > writer->room && writer->begin) {
        memmove(writer->text, writer->text + writer->begin, writer->end - writer->begin);
        writer->end -= writer->begin;
        writer->begin = 0;
    }
    if (ah_grow(&writer->text, writer->end + bytes, &writer->room, 1) < 0) {
        writer->error = ENOMEM;
        return;
    }
    memcpy(writer->text + writer->end, text, bytes);
    writer->end += bytes;
    if (writer->end - writer->begin >= GATHER)
        ah_output_writer_push(writer);
}

size_t ah_output_writer_pending(const struct ah_output_writer *writer)
{
    return writer->error ? 0 : writer->end - writer->begin;
}

int ah_output_writer_fd(const struct ah_output_writer *writer)
{
    return writer->fd;
}

int ah_output_writer_error(const struct ah_output_writer *writer)
{
    return writer->error;
}
