/* Free pieces are a list ordered by offset; a request uses the smallest sufficient piece. The memory after `used` was
 * never allocated and is zero. The last piece joins that part only as memory: `used` never shrinks, so that it remains
 * zero. */
#include "comm/control/segment.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status/status.h"

struct piece {
    struct piece *next;
    size_t offset, bytes;
};

struct ah_segment {
    struct ah_control_block *control;
    int rank;
    size_t used;
    struct piece *free;
    pthread_mutex_t lock;
};

int ah_segment_open(struct ah_segment **out, struct ah_control_block *control, int rank)
{
    struct ah_segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return ah_fail(AH_ENOMEM, "shared memory of rank %d: out of memory", rank);
    segment->control = control;
    segment->rank = rank;
    segment->used = 2 * AH_STAGE_BYTES;
    pthread_mutex_init(&segment->lock, NULL);
    *out = segment;
    return 0;
}

void ah_segment_close(struct ah_segment *segment)
{
    while (segment->free) {
        struct piece *next = segment->free->next;
        free(segment->free);
        segment->free = next;
    }
    pthread_mutex_destroy(&segment->lock);
    free(segment);
}

static size_t segment_rounded(size_t bytes)
{
    return bytes ? (bytes + 63) / 64 * 64 : 64;
}

/* The smallest free piece that serves, cut to size; false when there is none. */
static bool segment_reserve(struct ah_segment *segment, size_t bytes, size_t *offset)
{
    struct piece **best = NULL;
    for (struct piece **at = &segment->free; *at; at = &(*at)->next) {
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes))
            best = at;
        if (best && (*best)->bytes == bytes)
            break;
    }
    if (!best)
        return false;
    struct piece *piece = *best;
    *offset = piece->offset;
    piece->offset += bytes;
    piece->bytes -= bytes;
    if (piece->bytes == 0) {
        *best = piece->next;
        free(piece);
    }
    return true;
}

static int segment_alloc(struct ah_segment *segment, size_t bytes, bool zeroed, void **out)
{
    unsigned char *base = segment->control->segment[segment->rank];
    size_t offset;
    if (segment_reserve(segment, bytes, &offset)) {
        if (zeroed)
            memset(base + offset, 0, bytes);
    } else {
        AH_TRY(ah_control_grow(segment->control, segment->rank, segment->used + bytes));
        offset = segment->used;
        segment->used += bytes;
    }
    *out = base + offset;
    return 0;
}

int ah_segment_alloc(struct ah_segment *segment, size_t bytes, bool zeroed, void **out)
{
    if (bytes > SIZE_MAX / 2)
        return ah_fail(AH_ENOMEM, "shared memory of rank %d: %zu bytes wanted", segment->rank, bytes);
    AH_LOCK_SCOPE(&segment->lock);
    return segment_alloc(segment, segment_rounded(bytes), zeroed, out);
}

static void give_back(struct ah_segment *segment, size_t offset, size_t bytes)
{
    struct piece **at = &segment->free, *before = NULL;
    while (*at && (*at)->offset < offset) {
        before = *at;
        at = &(*at)->next;
    }
    struct piece *after = *at;
    if (before && before->offset + before->bytes == offset) {
        before->bytes += bytes;
        if (after && offset + bytes == after->offset) {
            before->bytes += after->bytes;
            before->next = after->next;
            free(after);
        }
    } else if (after && offset + bytes == after->offset) {
        after->offset = offset;
        after->bytes += bytes;
    } else {
        struct piece *piece = malloc(sizeof *piece);
        if (!piece)
            return; /* without a word for it the memory stays unused */
        *piece = (struct piece){after, offset, bytes};
        *at = piece;
    }
}

void ah_segment_free(struct ah_segment *segment, void *memory, size_t bytes)
{
    size_t offset = (size_t)((unsigned char *)memory - segment->control->segment[segment->rank]);
    AH_LOCK_SCOPE(&segment->lock);
    give_back(segment, offset, segment_rounded(bytes));
}

struct pages {
    uintptr_t begin, end;
};

static struct pages pages_in(const void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    return (struct pages){(at + page - 1) / page * page, (at + bytes) / page * page};
}

void ah_segment_release_pages(void *memory, size_t bytes)
{
    struct pages pages = pages_in(memory, bytes);
    if (pages.begin < pages.end)
        madvise((void *)pages.begin, pages.end - pages.begin, MADV_REMOVE);
}

void ah_segment_discard(void *memory, size_t bytes)
{
    struct pages pages = pages_in(memory, bytes);
    unsigned char *begin = (unsigned char *)pages.begin, *end = (unsigned char *)pages.end;
    if (pages.begin >= pages.end || madvise(begin, (size_t)(end - begin), MADV_REMOVE)) {
        memset(memory, 0, bytes);
        return;
    }
    memset(memory, 0, (size_t)(begin - (unsigned char *)memory));
    memset(end, 0, (size_t)((unsigned char *)memory + bytes - end));
}

void ah_segment_trim(struct ah_segment *segment)
{
    unsigned char *base = segment->control->segment[segment->rank];
    AH_LOCK_SCOPE(&segment->lock);
    for (struct piece *piece = segment->free; piece; piece = piece->next)
        ah_segment_release_pages(base + piece->offset, piece->bytes);
}

uint64_t ah_segment_offset(const struct ah_segment *segment, const void *buffer, size_t bytes)
{
    const unsigned char *base = segment->control->segment[segment->rank], *at = buffer;
    if (at < base + 2 * AH_STAGE_BYTES || at + bytes > base + segment->used)
        return AH_NO_OFFSET;
    return (uint64_t)(at - base);
}
