/* A region is a mapping that is allocated from below: up to `top` it has blocks and gaps, above it was never used.
 * Gaps are a list by address; those that touch are merged. */
#include "base/memory/region.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, LEAST_REGION = 256 << 20 };

struct gap {
    char *at;
    size_t bytes;
    bool returned; /* to the system */
    struct gap *next;
};

struct region {
    char *start, *top, *end;
    bool listed; /* of blocks of size classes */
    struct gap *gaps;
    struct region *next;
};

static struct region *regions;
static size_t region_cached, region_mapped[2]; /* by `listed` */

/* Regions start at a huge page's border and ask for huge pages: the first write to 100 MiB otherwise causes 27,000 page
 * faults, a third of the CPU time until the first training step ends. */
static struct region *region_map(size_t bytes, bool listed)
{
    struct region *region = malloc(sizeof *region);
    char *start = region ? mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                         : MAP_FAILED;
    if (start == MAP_FAILED) {
        free(region);
        return NULL;
    }
    size_t lead = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (lead)
        munmap(start, lead);
    if (lead < HUGE_PAGE)
        munmap(start + lead + bytes, HUGE_PAGE - lead);
    start += lead;
    madvise(start, bytes, MADV_HUGEPAGE);
    *region = (struct region){start, start, start + bytes, listed, NULL, regions};
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

/* Unlink *at and free it. */
static void gap_remove(struct gap **at)
{
    struct gap *gap = *at;
    *at = gap->next;
    region_cached -= gap->returned ? 0 : gap->bytes;
    free(gap);
}

/* Take a block from the smallest gap that holds it, with memory or without; NULL without such a gap. */
static void *gap_take(size_t bytes, bool returned, bool listed)
{
    struct gap **best = NULL;
    for (struct region *region = regions; region; region = region->next)
        for (struct gap **at = &region->gaps; *at && region->listed == listed; at = &(*at)->next)
            if ((*at)->bytes >= bytes && (*at)->returned == returned && (!best || (*at)->bytes < (*best)->bytes))
                best = at;
    if (!best)
        return NULL;
    struct gap *gap = *best;
    char *block = gap->at;
    region_cached -= returned ? 0 : bytes;
    gap->at += bytes;
    gap->bytes -= bytes;
    if (gap->bytes == 0)
        gap_remove(best);
    return block;
}

/* Take a block from the top of a region, and from the gap below it; NULL without room. */
static char *region_extend(struct region *region, size_t bytes)
{
    struct gap **last = NULL;
    for (struct gap **at = &region->gaps; *at; at = &(*at)->next)
        last = at;
    char *start = last && (*last)->at + (*last)->bytes == region->top ? (*last)->at : region->top;
    if ((size_t)(region->end - start) < bytes)
        return NULL;
    if (start < region->top)
        gap_remove(last);
    region->top = start + bytes;
    return start;
}

void *ah_region_reuse(size_t bytes)
{
    return gap_take(bytes, false, false);
}

static void *region_grow(size_t bytes, bool listed)
{
    void *block = gap_take(bytes, true, listed);
    for (struct region *region = regions; region && !block; region = region->next)
        block = region->listed == listed ? region_extend(region, bytes) : NULL;
    if (block)
        return block;
    struct region *added = region_add(bytes, listed);
    return added ? region_extend(added, bytes) : NULL;
}

void *ah_region_grow(size_t bytes)
{
    return region_grow(bytes, false);
}

void *ah_region_grow_listed(size_t bytes)
{
    return region_grow(bytes, true);
}

/* Merge a gap with the next one where they touch. One that was returned becomes one that was not: its pages are. */
static void gap_merge(struct gap *gap)
{
    struct gap *next = gap->next;
    if (!next || gap->at + gap->bytes != next->at)
        return;
    if (gap->returned != next->returned) {
        region_cached += gap->returned ? gap->bytes : next->bytes;
        gap->returned = next->returned = false;
    }
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
    if (before && before->at + before->bytes == (char *)block && !before->returned) {
        before->bytes += bytes;
        region_cached += bytes;
        gap_merge(before);
        return;
    }
    struct gap *gap = malloc(sizeof *gap);
    if (!gap) /* the block is lost to later calls */
        return;
    *gap = (struct gap){block, bytes, false, *at};
    *at = gap;
    region_cached += bytes;
    gap_merge(gap);
    if (before)
        gap_merge(before);
}

void ah_region_trim(void)
{
    for (struct region **at = &regions; *at;) {
        struct region *region = *at;
        for (struct gap *gap = region->gaps; gap; gap = gap->next) {
            if (!gap->returned)
                madvise(gap->at, gap->bytes, MADV_DONTNEED);
            region_cached -= gap->returned ? 0 : gap->bytes;
            gap->returned = true;
        }
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
        free(region);
    }
}

size_t ah_region_cached(void)
{
    return region_cached;
}
