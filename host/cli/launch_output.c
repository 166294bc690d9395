#include "cli/launch_output.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>

#include "base/status.h"

static const int64_t hold_ns = 50 * 1000000;
enum {
    LONGEST = 1 << 20,   /* bytes of a line before it is cut */
    HELD = 4096,         /* lines */
    WORDS = 256 / 64,    /* of a set of ranks */
};

struct line {
    struct line *next;
    int64_t due;
    uint64_t ranks[WORDS];
    int count;
    size_t bytes;
    char text[];
};

struct partial {
    char *text;
    size_t bytes, room;
    bool ended;
};

struct ah_output {
    int fd, ranks;
    uint64_t ended[WORDS]; /* ranks that write no more */
    bool terminal;
    int error; /* errno, once writing failed */
    struct line *first, **last;
    int held;
    struct partial partial[];
};

/* The output whose rank 0 has an unfinished line on the screen. One terminal serves both streams. */
static struct ah_output *shown;

int ah_output_open(struct ah_output **out, int fd, int ranks, bool terminal)
{
    struct ah_output *output = calloc(1, sizeof *output + (size_t)ranks * sizeof output->partial[0]);
    if (!output)
        return ah_fail(AH_ENOMEM, "out of memory");
    output->fd = fd;
    output->ranks = ranks;
    for (int r = ranks; r < WORDS * 64; r++)
        output->ended[r / 64] |= (uint64_t)1 << r % 64;
    output->terminal = terminal;
    output->last = &output->first;
    *out = output;
    return 0;
}

static void write_all(struct ah_output *output, const char *text, size_t bytes)
{
    while (bytes && !output->error) {
        ssize_t n = write(output->fd, text, bytes);
        if (n >= 0) {
            text += n;
            bytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            /* Somebody made our output non-blocking. */
            poll(&(struct pollfd){.fd = output->fd, .events = POLLOUT}, 1, 100);
        } else if (errno != EINTR) {
            output->error = errno;
        }
    }
}

/* The part of an unfinished line that is to be seen: what follows the last carriage return that something follows. */
static const char *visible(const char *text, size_t *bytes)
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

static void erase_shown(void)
{
    if (shown)
        write_all(shown, "\r\033[K", 4);
}

static void draw_shown(void)
{
    if (!shown)
        return;
    size_t bytes = shown->partial[0].bytes;
    const char *text = visible(shown->partial[0].text, &bytes);
    write_all(shown, text, bytes);
}

static void show(struct ah_output *output)
{
    if (!output->terminal)
        return;
    if (shown)
        erase_shown();
    if (output->partial[0].bytes)
        shown = output;
    else if (shown == output)
        shown = NULL;
    draw_shown();
}

/* "[r0-r3,r5] " */
static size_t prefix(const struct line *line, int ranks, char *text, size_t room)
{
    size_t at = 0;
    if (line->count == 1 && (line->ranks[0] & 1))
        return 0;
    at += (size_t)snprintf(text, room, "[");
    for (int r = 0, some = 0; r < ranks && at < room; r++) {
        int end = r;
        while (end < ranks && (line->ranks[end / 64] >> end % 64 & 1))
            end++;
        if (end == r)
            continue;
        const char *comma = some++ ? "," : "", *format = end - r > 1 ? "%sr%d-r%d" : "%sr%d";
        at += (size_t)snprintf(text + at, room - at, format, comma, r, end - 1);
        r = end;
    }
    if (at + 3 > room)
        at = room - 3;
    memcpy(text + at, "] ", 3);
    return at + 2;
}

static void write_first(struct ah_output *output)
{
    struct line *line = output->first;
    char head[1024]; /* enough for every second of the most ranks */
    size_t bytes = prefix(line, output->ranks, head, sizeof head);
    if (output->terminal)
        erase_shown();
    write_all(output, head, bytes);
    line->text[line->bytes] = '\n';
    write_all(output, line->text, line->bytes + 1);
    if (output->terminal)
        draw_shown();
    output->first = line->next;
    if (!output->first)
        output->last = &output->first;
    output->held--;
    free(line);
}

static void add_line(struct ah_output *output, int rank, const char *text, size_t bytes, int64_t now)
{
    text = visible(text, &bytes);
    uint64_t bit = (uint64_t)1 << rank % 64;
    /* The same line of another rank, behind every line of this rank. */
    struct line *same = NULL;
    for (struct line *line = output->first; line; line = line->next) {
        if (line->ranks[rank / 64] & bit)
            same = NULL;
        else if (!same && line->bytes == bytes && !memcmp(line->text, text, bytes))
            same = line;
    }
    if (same) {
        same->ranks[rank / 64] |= bit;
        same->count++;
        return;
    }
    struct line *line = malloc(sizeof *line + bytes + 1);
    if (!line) {
        write_all(output, text, bytes);
        write_all(output, "\n", 1);
        return;
    }
    *line = (struct line){.due = now + hold_ns, .count = 1, .bytes = bytes};
    line->ranks[rank / 64] = bit;
    memcpy(line->text, text, bytes);
    *output->last = line;
    output->last = &line->next;
    if (++output->held > HELD)
        write_first(output);
}

void ah_output_feed(struct ah_output *output, int rank, const char *text, size_t bytes, int64_t now)
{
    struct partial *partial = &output->partial[rank];
    bool first_rank = rank == 0 && bytes;
    if (partial->ended)
        return;
    while (bytes) {
        const char *end = memchr(text, '\n', bytes);
        size_t take = end ? (size_t)(end - text) : bytes;
        if (!partial->text || partial->bytes + take > partial->room) {
            size_t room = (partial->bytes + take) * 2 + 256;
            char *grown = realloc(partial->text, room);
            if (!grown)
                return;
            partial->text = grown;
            partial->room = room;
        }
        memcpy(partial->text + partial->bytes, text, take);
        partial->bytes += take;
        if (end || partial->bytes > LONGEST) {
            add_line(output, rank, partial->text, partial->bytes, now);
            partial->bytes = 0;
        } else {
            /* A progress bar redraws itself for hours: keep what is visible, and the return behind it. */
            size_t kept = partial->bytes;
            const char *from = visible(partial->text, &kept);
            size_t tail = (size_t)(partial->text + partial->bytes - from);
            memmove(partial->text, from, tail);
            partial->bytes = tail;
        }
        text += take + (end != NULL);
        bytes -= take + (end != NULL);
    }
    if (first_rank)
        show(output);
}

void ah_output_end(struct ah_output *output, int rank, int64_t now)
{
    struct partial *partial = &output->partial[rank];
    if (partial->ended)
        return;
    partial->ended = true;
    output->ended[rank / 64] |= (uint64_t)1 << rank % 64;
    if (partial->bytes) {
        add_line(output, rank, partial->text, partial->bytes, now);
        partial->bytes = 0;
        if (rank == 0)
            show(output);
    }
    free(partial->text);
    partial->text = NULL;
    partial->room = 0;
}

/* Every rank has said it or will not. */
static bool complete(const struct ah_output *output, const struct line *line)
{
    for (int w = 0; w < WORDS; w++)
        if (~(line->ranks[w] | output->ended[w]))
            return false;
    return true;
}

int64_t ah_output_flush(struct ah_output *output, int64_t now)
{
    while (output->first) {
        if (now < output->first->due && !complete(output, output->first))
            return output->first->due;
        write_first(output);
    }
    return -1;
}

int ah_output_error(const struct ah_output *output)
{
    return output->error;
}

void ah_output_close(struct ah_output *output)
{
    if (!output)
        return;
    for (int r = 0; r < output->ranks; r++)
        ah_output_end(output, r, 0);
    while (output->first)
        write_first(output);
    if (shown == output)
        shown = NULL;
    free(output);
}
