/* A region is a mapping that is allocated from below: up to `top` it has blocks and gaps, above it was never used.
 * Gaps are a list by address; those that touch are merged. A page is held from the use by a block on until its memory
 * is returned to the system or moved: memory of gaps is moved into a block that no single gap with memory has room for
 * (region_fill), so that a process needs no more of it than the blocks that live at one time. */
#include "base/memory/region.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4 << 10, HUGE_PAGE = 2 << 20, LEAST_REGION = 256 << 20 };

struct gap {
    char *at;
    size_t bytes;
    struct gap *next;
};

struct region {
    char *start, *top, *end;
    bool listed; /* of blocks of size classes */
    char *held;  /* [pages], 1: the page may have memory; owned */
    struct gap *gaps;
    struct region *next;
};

static struct region *regions;
static size_t region_cached, region_mapped[2]; /* by `listed` */
static bool region_immovable;                  /* the system does not move memory */

/* Is memory of gaps moved? A small process grows instead: its steps may be so short that moves in each would count. */
static bool region_moves(void)
{
    return !region_immovable && region_mapped[false] > LEAST_REGION;
}

/* Regions start at a huge page's border and ask for huge pages: the first write to 100 MiB otherwise causes 27,000 page
 * faults, a third of the CPU time until the first training step ends. */
static struct region *region_map(size_t bytes, bool listed)
{
    struct region *region = malloc(sizeof *region);
    char *held = calloc(bytes / PAGE, 1);
    char *start = region && held ? mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                        -1, 0)
                                 : MAP_FAILED;
    if (start == MAP_FAILED) {
        free(region);
        free(held);
        return NULL;
    }
    size_t lead = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (lead)
        munmap(start, lead);
    if (lead < HUGE_PAGE)
        munmap(start + lead + bytes, HUGE_PAGE - lead);
    start += lead;
    madvise(start, bytes, MADV_HUGEPAGE);
    *region = (struct region){start, start, start + bytes, listed, held, NULL, regions};
    regions = region;
    region_mapped[listed] += bytes;
    return region;
}

/* A region with room for a block: as large as all others of its kind together, or for the block alone where that is
 * refused. */
static struct region *region_add(size_t bytes, bool listed)
{
    size_t wanted = region_mapped[listed] > LEAST_REGION ? region_mapped[listed] : LEAST_REGION;
    struct region *region = bytes < wanted ? region_map(wanted, listed) : NULL;
    return region ? region : region_map((bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, listed);
}

static char *held_at(const struct region *region, const char *at)
{
    return region->held + (at - region->start) / PAGE;
}

/* The bytes of a part of a region that have memory. */
static size_t held_bytes(const struct region *region, const char *at, size_t bytes)
{
    const char *held = held_at(region, at);
    size_t count = 0;
    for (size_t i = 0; i < bytes / PAGE; i++)
        count += (size_t)held[i];
    return count * PAGE;
}

/* Have all pages of a part of a region memory, or has none? */
static bool held_is(const struct region *region, const char *at, size_t bytes, bool held)
{
    return !memchr(held_at(region, at), !held, bytes / PAGE);
}

/* Unlink *at and free it. */
static void gap_remove(struct gap **at)
{
    struct gap *gap = *at;
    *at = gap->next;
    free(gap);
}

/* A place for a block: the lower end of a gap, or the top of a region with the gap below it, where `gap` is NULL or
 * that gap. */
struct place {
    struct region *region; /* NULL: there is none */
    struct gap **gap;
    char *at;
};

/* The smallest gap with room, with `held` of those whose part for the block has memory. */
static struct place place_in_gap(size_t bytes, bool listed, bool held)
{
    struct place best = {0};
    size_t least = SIZE_MAX;
    for (struct region *region = regions; region; region = region->next) {
        for (struct gap **at = &region->gaps; *at && region->listed == listed; at = &(*at)->next) {
            struct gap *gap = *at;
            if (gap->bytes >= bytes && gap->bytes < least && (!held || held_is(region, gap->at, bytes, true))) {
                best = (struct place){region, at, gap->at};
                least = gap->bytes;
            }
        }
    }
    return best;
}

static struct place place_at_top(size_t bytes, bool listed)
{
    for (struct region *region = regions; region; region = region->next) {
        struct gap **last = NULL;
        for (struct gap **at = &region->gaps; *at; at = &(*at)->next)
            last = at;
        if (last && (*last)->at + (*last)->bytes < region->top)
            last = NULL;
        char *start = last ? (*last)->at : region->top;
        if (region->listed == listed && (size_t)(region->end - start) >= bytes)
            return (struct place){region, last, start};
    }
    return (struct place){0};
}

static struct place place_any(size_t bytes, bool listed)
{
    struct place place = place_in_gap(bytes, listed, false);
    return place.region ? place : place_at_top(bytes, listed);
}

static char *huge_page_below(const char *at)
{
    return (char *)((uintptr_t)at / HUGE_PAGE * HUGE_PAGE);
}

static char *huge_page_above(const char *at)
{
    return huge_page_below(at + HUGE_PAGE - 1);
}

/* The first of the huge pages from `page` up to `end` that has memory, or has none; NULL: there is none. Pages that
 * have it in part are neither. */
static char *huge_page_find(const struct region *region, char *page, const char *end, bool held)
{
    for (; page < end && end - page >= HUGE_PAGE; page += HUGE_PAGE)
        if (held_is(region, page, HUGE_PAGE, held))
            return page;
    return NULL;
}

/* The bytes of huge pages like that. */
static size_t huge_page_bytes(const struct region *region, char *page, const char *end, bool held)
{
    size_t count = 0;
    for (; (page = huge_page_find(region, page, end, held)); page += HUGE_PAGE)
        count++;
    return count * HUGE_PAGE;
}

static size_t movable_bytes(void)
{
    size_t bytes = 0;
    for (struct region *region = regions; region && region_moves(); region = region->next)
        for (struct gap *gap = region->gaps; gap && !region->listed; gap = gap->next)
            bytes += huge_page_bytes(region, huge_page_above(gap->at), gap->at + gap->bytes, true);
    return bytes;
}

/* Move the memory of `bytes` of a gap to another place, which has none. The mapping stays where it was, empty. */
static bool region_move(struct region *to, char *at, struct region *from, char *source, size_t bytes)
{
    if (mremap(source, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, at) == MAP_FAILED) {
        region_immovable = true;
        return false;
    }
    memset(held_at(to, at), 1, bytes / PAGE);
    memset(held_at(from, source), 0, bytes / PAGE);
    return true;
}

/* Move memory of gaps to the huge pages from `to` to `end` that have none, and are thus of no block. 2 MiB take 5 us,
 * their first write 50 us, and on a virtual machine whose host returns memory late 4 ms. */
static void region_fill(struct region *region, char *to, const char *end)
{
    to = huge_page_find(region, to, end, false);
    for (struct region *from = regions; from && to && region_moves(); from = from->next) {
        for (struct gap *gap = from->gaps; gap && to && !from->listed; gap = gap->next) {
            const char *gap_end = gap->at + gap->bytes;
            char *source = huge_page_find(from, huge_page_above(gap->at), gap_end, true);
            while (source && to) {
                size_t run = HUGE_PAGE;
                while (huge_page_find(region, to + run, end, false) == to + run &&
                       huge_page_find(from, source + run, gap_end, true) == source + run)
                    run += HUGE_PAGE;
                if (!region_move(region, to, from, source, run))
                    return;
                source = huge_page_find(from, source + run, gap_end, true);
                to = huge_page_find(region, to + run, end, false);
            }
        }
    }
}

/* Raise the top of a region to a huge page's end above `end`; the part above the block is a gap. */
static void region_raise(struct place place, char *end)
{
    struct region *region = place.region;
    struct gap **at = place.gap ? place.gap : &region->gaps, *gap = place.gap ? *at : NULL;
    char *top = huge_page_above(end);
    while (!gap && *at)
        at = &(*at)->next;
    if (gap && top == end)
        gap_remove(at);
    else if (!gap && top > end)
        gap = *at = malloc(sizeof *gap); /* without it the rest is lost to later calls */
    if (gap && top > end)
        *gap = (struct gap){end, (size_t)(top - end), NULL};
    region->top = top;
}

/* Take a block from its place. */
static char *place_take(struct place place, size_t bytes)
{
    struct region *region = place.region;
    char *block = place.at, *end = block + bytes;
    if (end > region->top) {
        region_raise(place, end);
    } else if ((*place.gap)->bytes > bytes) {
        (*place.gap)->at += bytes;
        (*place.gap)->bytes -= bytes;
    } else {
        gap_remove(place.gap);
    }
    if (!region->listed)
        region_fill(region, huge_page_below(block), huge_page_above(end));
    region_cached -= held_bytes(region, block, bytes);
    memset(held_at(region, block), 1, bytes / PAGE);
    return block;
}

void *ah_region_reuse(size_t bytes)
{
    struct place place = place_in_gap(bytes, false, true);
    if (place.region)
        return place_take(place, bytes);
    place = region_cached >= bytes ? place_any(bytes, false) : place;
    if (!place.region)
        return NULL;
    const char *end = huge_page_above(place.at + bytes);
    size_t empty = huge_page_bytes(place.region, huge_page_below(place.at), end, false);
    return movable_bytes() >= empty ? place_take(place, bytes) : NULL;
}

static void *region_grow(size_t bytes, bool listed)
{
    struct place place = place_any(bytes, listed);
    if (!place.region && region_add(bytes, listed))
        place = place_at_top(bytes, listed);
    return place.region ? place_take(place, bytes) : NULL;
}

void *ah_region_grow(size_t bytes)
{
    return region_grow(bytes, false);
}

void *ah_region_grow_listed(size_t bytes)
{
    return region_grow(bytes, true);
}

/* Merge a gap with the next one where they touch. */
static void gap_merge(struct gap *gap)
{
    struct gap *next = gap->next;
    if (!next || gap->at + gap->bytes != next->at)
        return;
    gap->bytes += next->bytes;
    gap->next = next->next;
    free(next);
}

static struct region *region_of(const void *block)
{
    struct region *region = regions;
    while (region && ((const char *)block < region->start || (const char *)block >= region->end))
        region = region->next;
    return region;
}

bool ah_region_has(const void *block)
{
    return region_of(block) != NULL;
}

void ah_region_free(void *block, size_t bytes)
{
    struct region *region = region_of(block);
    struct gap **at = &region->gaps, *before = NULL;
    for (; *at && (*at)->at < (char *)block; at = &(*at)->next)
        before = *at;
    if (before && before->at + before->bytes == (char *)block) {
        before->bytes += bytes;
        region_cached += bytes;
        gap_merge(before);
        return;
    }
    struct gap *gap = malloc(sizeof *gap);
    if (!gap) /* the block is lost to later calls */
        return;
    *gap = (struct gap){block, bytes, *at};
    *at = gap;
    region_cached += bytes;
    gap_merge(gap);
}

static void gap_return(struct region *region, struct gap *gap)
{
    size_t held = held_bytes(region, gap->at, gap->bytes);
    if (held)
        madvise(gap->at, gap->bytes, MADV_DONTNEED);
    memset(held_at(region, gap->at), 0, gap->bytes / PAGE);
    region_cached -= held;
}

void ah_region_trim(void)
{
    for (struct region **at = &regions; *at;) {
        struct region *region = *at;
        for (struct gap *gap = region->gaps; gap; gap = gap->next)
            gap_return(region, gap);
        struct gap *first = region->gaps;
        size_t used = (size_t)(region->top - region->start);
        if (used > 0 && !(first && first->bytes == used)) {
            at = &region->next;
            continue;
        }
        if (first)
            gap_remove(&region->gaps);
        *at = region->next;
        region_mapped[region->listed] -= (size_t)(region->end - region->start);
        munmap(region->start, (size_t)(region->end - region->start));
        free(region->held);
        free(region);
    }
}

size_t ah_region_cached(void)
{
    return region_cached;
}
