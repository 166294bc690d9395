/* Two streams, each with a queue of held lines (lines.h), each rank's unfinished line, and an output writer
 * (output_writer.h). Invariants: a rank's bytes are written in the order in which they arrived; between two writes to
 * an output writer either the last line there is complete, or `open_rank` is the rank whose line is not. */
#include "cli/output/launch_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "cli/base/lines.h"
#include "cli/output/output_writer.h"

static const int64_t hold_ns = 50 * 1000000, show_ns = 1000000000;
enum {
    LONGEST = 16 << 20, /* bytes of an unfinished line that are kept back */
    FULL = 256 * 1024,  /* bytes that the reader may leave untaken */
};

struct partial {
    char *text;
    size_t bytes, room;
    int64_t since; /* when the first byte arrived, -1 without one */
    bool ended;
};

struct stream {
    struct ah_output_writer *writer; /* NULL: not used */
    struct ah_lines *lines;
    struct partial *partial; /* of each rank */
    bool terminal;
    int open_rank; /* whose unfinished line was written last, -1 for none */
};

struct ah_output {
    int ranks;
    bool one_writer; /* both streams go to the same place */
    bool collapse_all; /* lines of all ranks have no prefix */
    struct stream stream[2];
    struct stream *shown; /* its rank 0 has an unfinished line on the screen */
};

int ah_output_open(struct ah_output **out, const int fd[2], const bool terminal[2], int ranks)
{
    struct stat info[2];
    int status = 0;
    struct ah_output *output = calloc(1, sizeof *output);
    AH_TRY_MEMORY(output, "out of memory");
    output->ranks = ranks;
    output->one_writer = fd[0] >= 0 && fd[1] >= 0 && !fstat(fd[0], &info[0]) && !fstat(fd[1], &info[1]) &&
                       info[0].st_dev == info[1].st_dev && info[0].st_ino == info[1].st_ino;
    for (int s = 0; s < 2; s++) {
        struct stream *stream = &output->stream[s];
        if (fd[s] < 0)
            continue;
        stream->terminal = terminal[s];
        stream->open_rank = -1;
        if (s == 1 && output->one_writer)
            stream->writer = output->stream[0].writer;
        else
            AH_TRYGO(ah_output_writer_open(&stream->writer, fd[s]), failed);
        AH_TRYGO(ah_lines_open(&stream->lines, ranks), failed);
        stream->partial = calloc((size_t)ranks, sizeof *stream->partial);
        if (!stream->partial) {
            status = ah_fail(AH_ENOMEM, "out of memory");
            goto failed;
        }
        for (int r = 0; r < ranks; r++)
            stream->partial[r].since = -1;
    }
    *out = output;
    return 0;
failed:
    ah_output_close(output);
    return status;
}

void ah_output_collapse_all(struct ah_output *output, bool all)
{
    output->collapse_all = all;
}

void ah_output_look_at_terminal(bool terminal[2], int *columns)
{
    struct winsize window = {0};
    terminal[0] = isatty(STDOUT_FILENO);
    terminal[1] = isatty(STDERR_FILENO);
    if (!ioctl(terminal[0] ? STDOUT_FILENO : STDERR_FILENO, TIOCGWINSZ, &window))
        *columns = window.ws_col;
}

void ah_output_close(struct ah_output *output)
{
    if (!output)
        return;
    for (int s = 0; s < 2; s++) {
        struct stream *stream = &output->stream[s];
        for (int r = 0; stream->partial && r < output->ranks; r++)
            free(stream->partial[r].text);
        free(stream->partial);
        ah_lines_close(stream->lines);
        if (s == 0 || !output->one_writer)
            ah_output_writer_close(stream->writer);
    }
    free(output);
}

/* The terminal. */

/* Return the visible part of an unfinished line: the text after the last carriage return that is not at its end. */
static const char *launch_output_visible(const char *text, size_t *bytes)
{
    size_t end = *bytes;
    while (end > 0 && text[end - 1] == '\r')
        end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '\r')
        begin--;
    *bytes = end - begin;
    return text + begin;
}

static void erase_shown(struct ah_output *output)
{
    if (output->shown)
        ah_output_writer_write(output->shown->writer, "\r\033[K", 4);
}

static void draw_shown(struct ah_output *output)
{
    if (!output->shown)
        return;
    size_t bytes = output->shown->partial[0].bytes;
    const char *text = launch_output_visible(output->shown->partial[0].text, &bytes);
    ah_output_writer_write(output->shown->writer, text, bytes);
}

static void launch_output_show(struct ah_output *output, struct stream *stream)
{
    if (!stream->terminal)
        return;
    erase_shown(output);
    if (stream->partial[0].bytes)
        output->shown = stream;
    else if (output->shown == stream)
        output->shown = NULL;
    draw_shown(output);
    ah_output_writer_push(stream->writer);
}

/* Writing. */

/* End the line that another rank has left unfinished in this output writer. */
static void end_open_line(struct ah_output *output, struct stream *stream)
{
    for (int s = 0; s < 2; s++) {
        struct stream *other = &output->stream[s];
        if (other->writer == stream->writer && other->writer && other->open_rank >= 0) {
            ah_output_writer_write(other->writer, "\n", 1);
            other->open_rank = -1;
        }
    }
}

static bool is_bare(const struct ah_output *output, const uint64_t *ranks, int count)
{
    return output->collapse_all ? count == output->ranks : count == 1 && (ranks[0] & 1);
}

/* "[r0-r3,r5] " */
static void write_prefix(const struct ah_output *output, struct stream *stream, const uint64_t *ranks, int count)
{
    char text[1024]; /* enough for every second of the most ranks */
    size_t at = 1;
    if (is_bare(output, ranks, count))
        return;
    text[0] = '[';
    for (int r = 0; r < output->ranks && at + 16 < sizeof text; r++) {
        int end = r;
        while (end < output->ranks && (ranks[end / 64] >> end % 64 & 1))
            end++;
        if (end == r)
            continue;
        const char *comma = at > 1 ? "," : "", *format = end - r > 1 ? "%sr%d-r%d" : "%sr%d";
        at += (size_t)snprintf(text + at, sizeof text - at, format, comma, r, end - 1);
        r = end;
    }
    memcpy(text + at, "] ", 2);
    ah_output_writer_write(stream->writer, text, at + 2);
}

static void write_rank_prefix(const struct ah_output *output, struct stream *stream, int rank)
{
    uint64_t ranks[AH_LINES_WORDS] = {0};
    ranks[rank / 64] |= (uint64_t)1 << rank % 64;
    write_prefix(output, stream, ranks, 1);
}

static void write_line(struct ah_output *output, struct stream *stream, const struct ah_line *line)
{
    bool bare = line->count == 1 && is_bare(output, line->ranks, 1);
    if (stream->terminal)
        erase_shown(output);
    end_open_line(output, stream);
    write_prefix(output, stream, line->ranks, line->count);
    ah_output_writer_write(stream->writer, line->text, line->bytes);
    /* A line that rank 0 left unfinished stays so until more output follows: its bytes may be no text. */
    if (line->unfinished && bare && !stream->terminal)
        stream->open_rank = 0;
    else
        ah_output_writer_write(stream->writer, "\n", 1);
    if (stream->terminal)
        draw_shown(output);
}

static void write_first(struct ah_output *output, struct stream *stream)
{
    write_line(output, stream, ah_lines_first(stream->lines));
    ah_lines_drop(stream->lines);
}

static void write_all(struct ah_output *output, struct stream *stream)
{
    while (ah_lines_first(stream->lines))
        write_first(output, stream);
}

/* Write the present part of a rank's unfinished line. */
static void write_partial(struct ah_output *output, struct stream *stream, int rank)
{
    struct partial *partial = &stream->partial[rank];
    write_all(output, stream);
    if (stream->open_rank != rank) {
        end_open_line(output, stream);
        write_rank_prefix(output, stream, rank);
        stream->open_rank = rank;
    }
    ah_output_writer_write(stream->writer, partial->text, partial->bytes);
    partial->bytes = 0;
    partial->since = -1;
}

/* Feeding. */

static void end_line(struct ah_output *output, struct stream *stream, int rank, const char *text, size_t bytes,
                     bool unfinished, int64_t now)
{
    if (stream->open_rank == rank && !(unfinished && rank == 0)) {
        ah_output_writer_write(stream->writer, text, bytes);
        ah_output_writer_write(stream->writer, "\n", 1);
        stream->open_rank = -1;
        return;
    }
    if (stream->open_rank == rank) {
        ah_output_writer_write(stream->writer, text, bytes);
        return;
    }
    if (stream->terminal)
        text = launch_output_visible(text, &bytes);
    while (!ah_lines_add(stream->lines, rank, text, bytes, unfinished, now + hold_ns)) {
        if (!ah_lines_first(stream->lines)) {
            struct ah_line line = {.text = (char *)(uintptr_t)text, .bytes = bytes, .count = 1};
            line.unfinished = unfinished;
            line.ranks[rank / 64] = (uint64_t)1 << rank % 64;
            write_line(output, stream, &line);
            return;
        }
        write_first(output, stream);
    }
}

static bool launch_output_append(struct partial *partial, const char *text, size_t bytes)
{
    if (ah_grow(&partial->text, partial->bytes + bytes + 1, &partial->room, 1) < 0)
        return false;
    memcpy(partial->text + partial->bytes, text, bytes);
    partial->bytes += bytes;
    return true;
}

/* A progress bar redraws itself for hours: keep the visible text, and the return after it. */
static void drop_redrawn(struct partial *partial)
{
    size_t kept = partial->bytes;
    const char *from = launch_output_visible(partial->text, &kept);
    size_t tail = (size_t)(partial->text + partial->bytes - from);
    memmove(partial->text, from, tail);
    partial->bytes = tail;
}

void ah_output_feed(struct ah_output *output, int s, int rank, const char *text, size_t bytes, int64_t now)
{
    struct stream *stream = &output->stream[s];
    struct partial *partial = &stream->partial[rank];
    bool first_rank = rank == 0 && bytes;
    if (partial->ended)
        return;
    while (bytes) {
        const char *end = memchr(text, '\n', bytes);
        size_t take = end ? (size_t)(end - text) : bytes;
        if (end && !partial->bytes) {
            end_line(output, stream, rank, text, take, false, now);
        } else if (!launch_output_append(partial, text, take)) {
            write_partial(output, stream, rank); /* no room: write the present text, then this */
            ah_output_writer_write(stream->writer, text, take + (end != NULL));
            stream->open_rank = end ? -1 : rank;
        } else if (end) {
            end_line(output, stream, rank, partial->text, partial->bytes, false, now);
            partial->bytes = 0;
            partial->since = -1;
        } else {
            if (partial->since < 0)
                partial->since = now;
            if (stream->terminal)
                drop_redrawn(partial);
            if (partial->bytes > LONGEST)
                write_partial(output, stream, rank);
        }
        text += take + (end != NULL);
        bytes -= take + (end != NULL);
    }
    if (first_rank)
        launch_output_show(output, stream);
}

void ah_output_end(struct ah_output *output, int s, int rank, int64_t now)
{
    struct stream *stream = &output->stream[s];
    struct partial *partial = &stream->partial[rank];
    if (partial->ended)
        return;
    partial->ended = true;
    ah_lines_end(stream->lines, rank);
    if (partial->bytes || (stream->open_rank == rank && rank != 0)) {
        end_line(output, stream, rank, partial->bytes ? partial->text : "", partial->bytes, true, now);
        partial->bytes = 0;
        partial->since = -1;
        if (rank == 0)
            launch_output_show(output, stream);
    }
    free(partial->text);
    partial->text = NULL;
    partial->room = 0;
}

void ah_output_say(struct ah_output *output, int s, const char *text)
{
    struct stream *stream = &output->stream[s];
    if (!stream->writer)
        return;
    write_all(output, stream);
    erase_shown(output);
    end_open_line(output, stream);
    ah_output_writer_write(stream->writer, text, strlen(text));
    draw_shown(output);
    ah_output_writer_push(stream->writer);
}

/* Time. */

static int64_t flush_lines(struct ah_output *output, struct stream *stream, int64_t now)
{
    const struct ah_line *line;
    while ((line = ah_lines_first(stream->lines)) != NULL) {
        if (now < line->due && !ah_lines_complete(stream->lines, line))
            return line->due;
        write_first(output, stream);
    }
    return -1;
}

/* A rank whose stream is full is not read, so that its line has no end yet is no notifications. */
static void renew_partials(struct ah_output *output, struct stream *stream, int64_t now)
{
    for (int r = 0; r < output->ranks; r++)
        if (stream->partial[r].since >= 0)
            stream->partial[r].since = now;
}

static int64_t flush_partials(struct ah_output *output, struct stream *stream, int64_t now)
{
    int64_t due = -1;
    if (stream->terminal)
        return -1;
    for (int r = 0; r < output->ranks; r++) {
        int64_t since = stream->partial[r].since;
        if (since < 0)
            continue;
        if (now >= since + show_ns)
            write_partial(output, stream, r);
        else if (due < 0 || since + show_ns < due)
            due = since + show_ns;
    }
    return due;
}

int64_t ah_output_flush(struct ah_output *output, int64_t now)
{
    int64_t due = -1;
    for (int s = 0; s < 2; s++)
        if (ah_output_is_full(output, s))
            renew_partials(output, &output->stream[s], now);
    for (int s = 0; s < 2; s++) {
        struct stream *stream = &output->stream[s];
        if (!stream->writer)
            continue;
        int64_t next[2] = {flush_lines(output, stream, now), flush_partials(output, stream, now)};
        for (int k = 0; k < 2; k++)
            if (next[k] >= 0 && (due < 0 || next[k] < due))
                due = next[k];
        ah_output_writer_push(stream->writer);
    }
    return due;
}

void ah_output_settle(struct ah_output *output)
{
    for (int s = 0; s < 2; s++) {
        struct stream *stream = &output->stream[s];
        for (int r = 0; stream->writer && r < output->ranks; r++)
            if (stream->partial[r].bytes)
                ah_output_feed(output, s, r, "\n", 1, 0);
        if (!stream->writer)
            continue;
        write_all(output, stream);
        end_open_line(output, stream);
        ah_output_writer_push(stream->writer);
    }
}

void ah_output_finish(struct ah_output *output)
{
    for (int s = 0; s < 2; s++) {
        if (!output->stream[s].writer)
            continue;
        for (int r = 0; r < output->ranks; r++)
            ah_output_end(output, s, r, 0);
        write_all(output, &output->stream[s]);
        ah_output_writer_push(output->stream[s].writer);
    }
}

bool ah_output_is_full(const struct ah_output *output, int stream)
{
    const struct ah_output_writer *writer = output->stream[stream].writer;
    return writer && ah_output_writer_pending(writer) > FULL;
}

int ah_output_fd(const struct ah_output *output, int stream)
{
    const struct ah_output_writer *writer = output->stream[stream].writer;
    return writer && ah_output_writer_pending(writer) ? ah_output_writer_fd(writer) : -1;
}

size_t ah_output_pending(const struct ah_output *output)
{
    size_t pending = 0;
    for (int s = 0; s < 2; s++)
        if (output->stream[s].writer && !(s == 1 && output->one_writer))
            pending += ah_output_writer_pending(output->stream[s].writer);
    return pending;
}

int ah_output_error(const struct ah_output *output)
{
    for (int s = 0; s < 2; s++)
        if (output->stream[s].writer && ah_output_writer_error(output->stream[s].writer))
            return ah_output_writer_error(output->stream[s].writer);
    return 0;
}
