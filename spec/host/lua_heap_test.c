/* The record of Lua's memory: mapped memory is read; memory that was returned or moved is not touched. */
#include "bind/lua/lua_heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

enum { PAGES = 4 };

static char *map_pages(size_t count)
{
    char *at = ah_lua_heap_map(NULL, count * (size_t)getpagesize(), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static bool is_resident(char *page)
{
    unsigned char in_memory = 0;
    return mincore(page, (size_t)getpagesize(), &in_memory) == 0 && in_memory & 1;
}

AH_TEST(the_memory_of_lua_is_read_before_a_collection)
{
    size_t page = (size_t)getpagesize();
    char *at = map_pages(PAGES);
    REQUIRE(at);
    CHECK(!is_resident(at) && !is_resident(at + (PAGES - 1) * page));
    ah_lua_heap_load();
    CHECK(is_resident(at) && is_resident(at + (PAGES - 1) * page));
    CHECK(ah_lua_heap_unmap(at, PAGES * page) == 0);
}

AH_TEST(memory_that_lua_has_returned_is_not_read)
{
    size_t page = (size_t)getpagesize();
    char *at = map_pages(PAGES);
    REQUIRE(at);
    CHECK(ah_lua_heap_unmap(at + page, page) == 0);
    ah_lua_heap_load(); /* a fault ends the test */
    CHECK(is_resident(at));
    CHECK(ah_lua_heap_unmap(at, page) == 0);
    CHECK(ah_lua_heap_unmap(at + 2 * page, 2 * page) == 0);
    ah_lua_heap_load();
    CHECK(!is_resident(at) && !is_resident(at + 2 * page));
}

AH_TEST(memory_that_lua_has_moved_is_read_where_it_is)
{
    size_t page = (size_t)getpagesize();
    char *at = map_pages(1);
    REQUIRE(at);
    char *moved = ah_lua_heap_remap(at, page, PAGES * page, MREMAP_MAYMOVE);
    REQUIRE(moved != MAP_FAILED);
    CHECK(!is_resident(moved + (PAGES - 1) * page));
    ah_lua_heap_load();
    CHECK(is_resident(moved + (PAGES - 1) * page));
    CHECK(ah_lua_heap_unmap(moved, PAGES * page) == 0);
    CHECK(ah_lua_heap_remap(moved, page, 2 * page, MREMAP_MAYMOVE) == MAP_FAILED);
    ah_lua_heap_load();
}
