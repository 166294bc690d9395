/* Pipes, read without waiting. */
#include "jupyter/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status/status.h"
#include "base/trace/time.h"

static const int64_t publish_after_ns = 30000000, ms_ns = 1000000;

int ah_capture_replace(int fd[2])
{
    int ends[2][2];
    for (int i = 0; i < 2; i++)
        if (pipe2(ends[i], O_CLOEXEC)) {
            int reason = errno;
            for (int k = 0; k < 2 * i; k++)
                close(ends[0][k]);
            return ah_fail(AH_EIO, "output cannot be captured: %s", strerror(reason));
        }
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i][0], F_SETFL, O_NONBLOCK);
        fcntl(ends[i][1], F_SETPIPE_SZ, 1 << 20);
        dup2(ends[i][1], STDOUT_FILENO + i);
        close(ends[i][1]);
        fd[i] = ends[i][0];
    }
    return 0;
}

static void capture_free(struct ah_capture_pair *pair)
{
    for (int i = 0; i < 2; i++)
        if (pair->stream[i].fd >= 0)
            close(pair->stream[i].fd);
    free((char *)pair->header.bytes);
    free(pair);
}

int ah_capture_add(struct ah_capture *capture, const int fd[2], struct ah_jupyter_text header)
{
    char *copy = malloc(header.count + 1);
    struct ah_capture_pair *pair =
        fd[0] < 0 ? capture->count ? capture->pair[capture->count - 1] : NULL : calloc(1, sizeof *pair);
    if (!copy || !pair) {
        free(copy);
        if (fd[0] >= 0) {
            free(pair);
            close(fd[0]);
            close(fd[1]);
        }
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    memcpy(copy, header.bytes, header.count);
    copy[header.count] = 0;
    free((char *)pair->header.bytes);
    pair->header = (struct ah_jupyter_text){copy, header.count};
    if (fd[0] < 0)
        return 0;
    for (int i = 0; i < 2; i++)
        pair->stream[i].fd = fd[i];
    capture->pair[capture->count++] = pair;
    return 0;
}

/* Bytes of the character that begins with this byte; 0: none does. */
static size_t utf8_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Bytes at the front that belong to one character, as far as they are here: `length` of them if it is whole. */
static size_t utf8_run(const unsigned char *bytes, size_t count, size_t length)
{
    size_t run = 1;
    for (; run < length && run < count; run++) {
        unsigned char low = 0x80, high = 0xbf;
        if (run == 1 && bytes[0] == 0xe0)
            low = 0xa0;
        if (run == 1 && bytes[0] == 0xed)
            high = 0x9f;
        if (run == 1 && bytes[0] == 0xf0)
            low = 0x90;
        if (run == 1 && bytes[0] == 0xf4)
            high = 0x8f;
        if (bytes[run] < low || bytes[run] > high)
            break;
    }
    return run;
}

size_t ah_capture_utf8(char *out, const char *bytes, size_t count, bool whole, size_t *used)
{
    size_t at = 0, written = 0;
    while (at < count) {
        const unsigned char *from = (const unsigned char *)bytes + at;
        size_t length = utf8_length(*from);
        size_t run = length ? utf8_run(from, count - at, length) : 1;
        if (run == length) {
            memcpy(out + written, from, length);
            written += length;
            at += length;
        } else if (length && at + run == count && !whole) {
            break;
        } else {
            memcpy(out + written, "\xef\xbf\xbd", 3);
            written += 3;
            at += run;
        }
    }
    *used = at;
    return written;
}

static void capture_publish(struct ah_capture *capture, struct ah_capture_pair *pair, int i, bool whole)
{
    static const char *const names[] = {"stdout", "stderr"};
    struct ah_capture_stream *stream = &pair->stream[i];
    char text[3 * AH_CAPTURE_TEXT];
    size_t used = 0, bytes = ah_capture_utf8(text, stream->text, stream->count, whole, &used);
    if (bytes)
        capture->publish(capture->context, pair, names[i], text, bytes);
    memmove(stream->text, stream->text + used, stream->count - used);
    stream->count -= used;
}

/* Read all that a pipe has now; full texts are published. */
static void capture_read_stream(struct ah_capture *capture, struct ah_capture_pair *pair, int i)
{
    struct ah_capture_stream *stream = &pair->stream[i];
    /* A writer that never rests must not keep the thread from its sockets. */
    for (int round = 0; stream->fd >= 0 && round < 64; round++) {
        ssize_t got = read(stream->fd, stream->text + stream->count, sizeof stream->text - stream->count);
        if (got < 0)
            return;
        if (got == 0) {
            close(stream->fd);
            stream->fd = -1;
            capture_publish(capture, pair, i, true);
            return;
        }
        if (!pair->since_ns)
            pair->since_ns = ah_now_ns();
        stream->count += (size_t)got;
        if (stream->count > sizeof stream->text / 2)
            capture_publish(capture, pair, i, false);
    }
}

void ah_capture_read(struct ah_capture *capture, bool now)
{
    for (int k = 0; k < capture->count; k++) {
        struct ah_capture_pair *pair = capture->pair[k];
        for (int i = 0; i < 2; i++)
            capture_read_stream(capture, pair, i);
        if (pair->since_ns && (now || ah_now_ns() - pair->since_ns >= publish_after_ns)) {
            for (int i = 0; i < 2; i++)
                capture_publish(capture, pair, i, false);
            pair->since_ns = 0;
        }
    }
    for (int k = 0; k + 1 < capture->count;) {
        if (capture->pair[k]->stream[0].fd >= 0 || capture->pair[k]->stream[1].fd >= 0) {
            k++;
            continue;
        }
        capture_free(capture->pair[k]);
        capture->count--;
        memmove(capture->pair + k, capture->pair + k + 1, (size_t)(capture->count - k) * sizeof capture->pair[0]);
    }
}

int ah_capture_delay(const struct ah_capture *capture)
{
    int64_t soonest = -1;
    for (int k = 0; k < capture->count; k++) {
        int64_t since = capture->pair[k]->since_ns, left = since + publish_after_ns - ah_now_ns();
        if (since && (soonest < 0 || left < soonest))
            soonest = left > 0 ? left : 0;
    }
    return soonest < 0 ? -1 : (int)((soonest + ms_ns - 1) / ms_ns);
}

void ah_capture_close(struct ah_capture *capture)
{
    for (int k = 0; k < capture->count; k++)
        capture_free(capture->pair[k]);
    capture->count = 0;
}
