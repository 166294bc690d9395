/* A ring of lines addressed by their number since the start, and a hash table whose chains run through it from old to
 * new. Numbers only grow, so "behind every line of this rank" is one comparison, and the line dropped first is always
 * the head of its chain. */
#include "cli/base/lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

enum { LINES = 8192, BYTES = 4 << 20, NONE = 0 }; /* numbers start at 1 */

struct chain {
    uint64_t first, last;
};

struct ah_lines {
    uint64_t first, end; /* numbers of the first line held and of the next one */
    size_t bytes;
    uint64_t ended[AH_LINES_WORDS];
    uint64_t latest[AH_LINES_RANKS]; /* number of each rank's latest line */
    struct chain chain[LINES];
    struct ah_line line[LINES];
};

int ah_lines_open(struct ah_lines **out, int ranks)
{
    struct ah_lines *lines = calloc(1, sizeof *lines);
    AH_TRY_MEMORY(lines, "out of memory");
    lines->first = lines->end = 1;
    for (int r = ranks; r < AH_LINES_RANKS; r++)
        ah_lines_end(lines, r);
    *out = lines;
    return 0;
}

void ah_lines_close(struct ah_lines *lines)
{
    if (!lines)
        return;
    while (ah_lines_first(lines))
        ah_lines_drop(lines);
    free(lines);
}

static struct ah_line *lines_at(struct ah_lines *lines, uint64_t number)
{
    return &lines->line[number % LINES];
}

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = bytes;
    for (; bytes; ) {
        uint64_t word = 0;
        size_t take = bytes < 8 ? bytes : 8;
        memcpy(&word, text, take);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
        text += take;
        bytes -= take;
    }
    return hash;
}

/* The first line of this text behind number `after`. */
static struct ah_line *lines_find(struct ah_lines *lines, uint64_t after, uint64_t hash, const char *text, size_t bytes,
                                  bool unfinished, uint64_t *number)
{
    uint64_t n = lines->chain[hash % LINES].first;
    /* Ranks that repeat one line each need not walk all their lines. */
    if (after >= lines->first && lines_at(lines, after)->hash % LINES == hash % LINES)
        n = lines_at(lines, after)->next;
    for (; n != NONE; n = lines_at(lines, n)->next) {
        struct ah_line *line = lines_at(lines, n);
        if (n > after && line->hash == hash && line->bytes == bytes && line->unfinished == unfinished &&
            !memcmp(line->text, text, bytes)) {
            *number = n;
            return line;
        }
    }
    return NULL;
}

bool ah_lines_add(struct ah_lines *lines, int rank, const char *text, size_t bytes, bool unfinished, int64_t due)
{
    uint64_t hash = hash_of(text, bytes);
    struct ah_line *line = lines_find(lines, lines->latest[rank], hash, text, bytes, unfinished, &lines->latest[rank]);
    if (!line) {
        if (lines->end - lines->first == LINES || (lines->bytes && lines->bytes + bytes > BYTES))
            return false;
        char *copy = malloc(bytes + 1);
        if (!copy)
            return false;
        memcpy(copy, text, bytes);
        uint64_t number = lines->end++;
        line = lines_at(lines, number);
        *line = (struct ah_line){.due = due, .bytes = bytes, .text = copy, .hash = hash, .unfinished = unfinished};
        struct chain *chain = &lines->chain[hash % LINES];
        if (chain->first == NONE)
            chain->first = number;
        else
            lines_at(lines, chain->last)->next = number;
        chain->last = number;
        lines->bytes += bytes;
        lines->latest[rank] = number;
    }
    line->ranks[rank / 64] |= (uint64_t)1 << rank % 64;
    line->count++;
    return true;
}

void ah_lines_end(struct ah_lines *lines, int rank)
{
    lines->ended[rank / 64] |= (uint64_t)1 << rank % 64;
}

const struct ah_line *ah_lines_first(const struct ah_lines *lines)
{
    return lines->first == lines->end ? NULL : &lines->line[lines->first % LINES];
}

bool ah_lines_complete(const struct ah_lines *lines, const struct ah_line *line)
{
    for (int w = 0; w < AH_LINES_WORDS; w++)
        if (~(line->ranks[w] | lines->ended[w]))
            return false;
    return true;
}

void ah_lines_drop(struct ah_lines *lines)
{
    struct ah_line *line = lines_at(lines, lines->first);
    lines->chain[line->hash % LINES].first = line->next;
    lines->bytes -= line->bytes;
    free(line->text);
    lines->first++;
}
