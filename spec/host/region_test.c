/* Large blocks. Other tests of the process may hold regions, so sizes are compared, not addresses. */
#include "base/memory/region.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory/alloc.h"
#include "test.h"

enum { MIB = 1 << 20 };

AH_TEST(a_block_is_made_of_freed_neighbours)
{
    char *block[4];
    for (int i = 0; i < 4; i++) {
        block[i] = ah_region_grow(3 * MIB);
        REQUIRE(block[i] && (uintptr_t)block[i] % AH_REGION_UNIT == 0);
        memset(block[i], i, 3 * MIB);
    }
    size_t before = ah_region_cached();
    ah_region_free(block[0], 3 * MIB);
    ah_region_free(block[2], 3 * MIB);
    CHECK(block[3][0] == 3 && block[1][3 * MIB - 1] == 1);
    ah_region_free(block[1], 3 * MIB);
    CHECK(ah_region_cached() == before + 9 * MIB);
    CHECK(!ah_region_reuse(before + 9 * MIB + AH_REGION_UNIT));
    char *large = ah_region_reuse(9 * MIB);
    REQUIRE(large);
    CHECK(ah_region_cached() == before);
    memset(large, 9, 9 * MIB);
    CHECK(block[3][3 * MIB - 1] == 3);
    ah_region_free(large, 9 * MIB);
    ah_region_free(block[3], 3 * MIB);
}

/* The pages of this process that have memory, in MiB. */
static long resident(void)
{
    long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE) / MIB;
}

AH_TEST(a_large_block_has_the_memory_of_gaps_that_do_not_touch)
{
    enum { COUNT = 16, EACH = 4 * MIB, LARGE = 16 * MIB };
    char *block[COUNT], *other = ah_region_grow((size_t)300 << 20); /* small processes move nothing */
    REQUIRE(other);
    ah_region_trim();
    for (int i = 0; i < COUNT; i++) {
        block[i] = ah_region_grow(EACH);
        REQUIRE(block[i]);
        memset(block[i], i + 1, EACH);
    }
    for (int i = 0; i < COUNT; i += 2)
        ah_region_free(block[i], EACH);
    size_t before = ah_region_cached();
    long used = resident();
    char *large = ah_region_reuse(LARGE);
    bool moves = large != NULL; /* Linux 5.7 */
    if (!moves)
        large = ah_region_grow(LARGE);
    REQUIRE(large);
    memset(large, 77, LARGE);
    if (moves) {
        CHECK(resident() - used <= 6); /* ends that are no huge pages */
        CHECK(ah_region_cached() <= before - (LARGE - 4 * MIB));
    }
    for (int i = 1; i < COUNT; i += 2)
        CHECK(block[i][0] == i + 1 && block[i][EACH - 1] == i + 1);
    char *again = ah_region_grow(EACH); /* in a gap that has lost its memory */
    REQUIRE(again);
    memset(again, 5, EACH);
    CHECK(large[0] == 77 && large[LARGE - 1] == 77);
    for (int i = 1; i < COUNT; i += 2) {
        CHECK(block[i][0] == i + 1 && block[i][EACH - 1] == i + 1);
        ah_region_free(block[i], EACH);
    }
    ah_region_free(again, EACH);
    ah_region_free(large, LARGE);
    ah_region_free(other, (size_t)300 << 20);
    ah_region_trim();
    CHECK(ah_region_cached() == 0);
}

/* A word in each page of a block that names it. */
static void mark(char *block, size_t bytes, unsigned number)
{
    for (size_t at = 0; at < bytes; at += 4096)
        memcpy(block + at, &(unsigned){number + (unsigned)(at >> 12)}, sizeof number);
}

static bool is_marked(const char *block, size_t bytes, unsigned number)
{
    for (size_t at = 0; at < bytes; at += 4096) {
        unsigned found;
        memcpy(&found, block + at, sizeof found);
        if (found != number + (unsigned)(at >> 12))
            return false;
    }
    return true;
}

AH_TEST(blocks_keep_their_contents_while_memory_is_moved_around_them)
{
    enum { COUNT = 24, TURNS = 1500 };
    struct { char *at; size_t bytes; unsigned number; } block[COUNT] = {{0}};
    char *other = ah_region_grow((size_t)300 << 20); /* small processes move nothing */
    size_t live = 0, cached = ah_region_cached();
    unsigned random = 12345;
    REQUIRE(other);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        random = random * 1664525 + 1013904223;
        unsigned i = (random >> 8) % COUNT;
        if (block[i].at) {
            CHECK(is_marked(block[i].at, block[i].bytes, block[i].number));
            ah_region_free(block[i].at, block[i].bytes);
            live -= block[i].bytes;
            block[i].at = NULL;
            continue;
        }
        block[i].bytes = (size_t)AH_REGION_UNIT * ((random >> 24) % 16 + (i < COUNT / 4 ? 200 : 40));
        if (turn % 300 == 0)
            ah_region_trim();
        block[i].at = ah_region_reuse(block[i].bytes);
        if (!block[i].at)
            block[i].at = ah_region_grow(block[i].bytes);
        REQUIRE(block[i].at && (uintptr_t)block[i].at % AH_REGION_UNIT == 0);
        block[i].number = turn * 100003;
        mark(block[i].at, block[i].bytes, block[i].number);
        live += block[i].bytes;
    }
    for (int i = 0; i < COUNT; i++) {
        if (!block[i].at)
            continue;
        CHECK(is_marked(block[i].at, block[i].bytes, block[i].number));
        ah_region_free(block[i].at, block[i].bytes);
        live -= block[i].bytes;
    }
    CHECK(live == 0 && ah_region_cached() >= cached);
    ah_region_free(other, (size_t)300 << 20);
    ah_region_trim();
    CHECK(ah_region_cached() == 0);
}

AH_TEST(a_block_that_needs_more_than_all_gaps_have_is_not_made_of_them)
{
    char *low = ah_region_grow(8 * MIB), *high = ah_region_grow(2 * MIB);
    REQUIRE(low && high);
    ah_region_free(low, 8 * MIB);
    CHECK(!ah_region_reuse(ah_region_cached() + AH_REGION_UNIT));
    ah_region_free(high, 2 * MIB);
    ah_region_trim();
}

AH_TEST(returned_memory_is_zeros_when_it_serves_again)
{
    char *low = ah_region_grow(4 * MIB), *high = ah_region_grow(2 * MIB);
    REQUIRE(low && high);
    memset(low, 1, 4 * MIB);
    ah_region_free(low, 4 * MIB);
    ah_region_trim();
    CHECK(ah_region_cached() == 0);
    CHECK(!ah_region_reuse(4 * MIB));
    low = ah_region_grow(4 * MIB);
    REQUIRE(low);
    CHECK(low[0] == 0 && low[4 * MIB - 1] == 0);
    ah_region_free(low, 4 * MIB);
    ah_region_free(high, 2 * MIB);
    ah_region_trim();
    CHECK(ah_region_cached() == 0);
}

AH_TEST(blocks_of_size_classes_do_not_divide_the_gaps_of_large_ones)
{
    char *large = ah_region_grow(2 * MIB), *listed = ah_region_grow_listed(40 << 10);
    REQUIRE(large && listed && (uintptr_t)listed % 4096 == 0);
    CHECK(ah_region_has(large) && ah_region_has(listed + 100) && !ah_region_has(&large));
    memset(listed, 1, 40 << 10);
    size_t before = ah_region_cached();
    ah_region_free(large, 2 * MIB);
    char *other = ah_region_grow_listed(40 << 10);
    REQUIRE(other && other != listed);
    CHECK(ah_region_cached() == before + 2 * MIB && ah_region_reuse(2 * MIB) == large);
    CHECK(listed[0] == 1 && listed[(40 << 10) - 1] == 1);
    ah_region_free(listed, 40 << 10);
    ah_region_free(other, 40 << 10);
    ah_region_free(large, 2 * MIB);
    ah_region_trim();
    CHECK(ah_region_cached() == 0);
}

AH_TEST(many_blocks_of_medium_size_are_in_regions_and_can_be_trimmed)
{
    enum { COUNT = 80, BYTES = 300 << 10 };
    void *block[COUNT];
    int in_regions = 0;
    for (int i = 0; i < COUNT; i++) {
        REQUIRE(ah_block_alloc(BYTES + (size_t)i * 4096, &block[i]) == 0);
        CHECK((uintptr_t)block[i] % 64 == 0);
        in_regions += ah_region_has(block[i]);
        memset(block[i], i, BYTES + (size_t)i * 4096);
    }
    CHECK(in_regions > 0 || !AH_KEEPS_FREED);
    for (int i = 0; i < COUNT; i++) {
        CHECK(((uint8_t *)block[i])[BYTES - 1] == i);
        ah_block_free(block[i], BYTES + (size_t)i * 4096);
    }
    ah_block_trim();
    CHECK(ah_memory_stats().cached == 0);
}

AH_TEST(a_block_that_the_system_refuses_is_NULL)
{
    CHECK(!ah_region_grow((size_t)1 << 46));
}
