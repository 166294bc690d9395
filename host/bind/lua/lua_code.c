/* LuaJIT's jumps reach 2 GiB on x86-64 and 128 MiB on aarch64, so compiled code must be near LuaJIT's own. It maps such
 * memory piece by piece, at random addresses, and again after each flush; where large libraries and pinned memory
 * occupy that window the search fails and every trace is aborted: a loop of 0.08 s ran for 109 s (measured). So the
 * first piece reserves addresses below the program, which cost no memory, and all pieces are mapped there; beyond the
 * reserve LuaJIT searches as before.
 * With LuaJIT as a shared library only the first piece is certain, which a short loop claims (cli/process/host.c). */
#include "bind/lua/lua_code.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include <lauxlib.h>

#include "bind/lua/lua_heap.h"

enum { UNIT = 1 << 16, UNITS = 128, TRIES = 15 };
#define RESERVE ((size_t)UNIT * UNITS)
/* Any two places this near to LuaJIT's code reach each other; LuaJIT accepts memory within 62 MiB on aarch64. */
#if defined(__aarch64__)
#define REACH ((uintptr_t)60 << 20)
#else
#define REACH ((uintptr_t)1 << 30)
#endif

static pthread_mutex_t lua_code_lock = PTHREAD_MUTEX_INITIALIZER;
static char *lua_code_reserve; /* MAP_FAILED: there is none */
static bool lua_code_used[UNITS];

static uintptr_t own_code(void)
{
    return (uintptr_t)luaL_newstate;
}

static char *make_reserve(void)
{
    uintptr_t code = own_code() / RESERVE * RESERVE;
    for (uintptr_t i = 1; i <= TRIES; i++) {
        void *at = mmap((void *)(code - i * (REACH / 16)), RESERVE, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (at != MAP_FAILED && own_code() - (uintptr_t)at < REACH)
            return at;
        if (at != MAP_FAILED)
            munmap(at, RESERVE); /* a kernel before 4.17 treats the address as a hint */
    }
    return MAP_FAILED;
}

static size_t units_of(size_t bytes)
{
    return (bytes + UNIT - 1) / UNIT;
}

/* Return the first of `count` consecutive free units; UNITS when there are none. */
static size_t find_free(size_t count)
{
    size_t length = 0;
    for (size_t i = 0; i < UNITS; i++) {
        length = lua_code_used[i] ? 0 : length + 1;
        if (length == count)
            return i + 1 - count;
    }
    return UNITS;
}

static void *lua_code_alloc(size_t bytes, int protection)
{
    if (!lua_code_reserve)
        lua_code_reserve = make_reserve();
    size_t count = units_of(bytes), first = lua_code_reserve == MAP_FAILED ? UNITS : find_free(count);
    if (first == UNITS || mprotect(lua_code_reserve + first * UNIT, bytes, protection))
        return MAP_FAILED;
    for (size_t i = 0; i < count; i++)
        lua_code_used[first + i] = true;
    return lua_code_reserve + first * UNIT;
}

void *ah_lua_mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
    uintptr_t wanted = (uintptr_t)hint, code = own_code();
    void *at = MAP_FAILED;
    if (hint && bytes && bytes <= RESERVE && flags == (MAP_PRIVATE | MAP_ANONYMOUS) &&
        (wanted < code ? code - wanted : wanted - code) < REACH) {
        pthread_mutex_lock(&lua_code_lock);
        at = lua_code_alloc(bytes, protection);
        pthread_mutex_unlock(&lua_code_lock);
    }
    return at != MAP_FAILED ? at : ah_lua_heap_map(hint, bytes, protection, flags, file, offset);
}

void *ah_lua_mmap64(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return ah_lua_mmap(hint, bytes, protection, flags, file, offset);
}

int ah_lua_munmap(void *at, size_t bytes)
{
    uintptr_t place = (uintptr_t)at - (uintptr_t)lua_code_reserve;
    if (!lua_code_reserve || lua_code_reserve == MAP_FAILED || place >= RESERVE)
        return ah_lua_heap_unmap(at, bytes);
    pthread_mutex_lock(&lua_code_lock);
    /* Mapped again without access, so that its pages are freed and the addresses stay reserved. */
    void *blank = mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (size_t i = 0; blank != MAP_FAILED && i < units_of(bytes); i++)
        lua_code_used[place / UNIT + i] = false;
    pthread_mutex_unlock(&lua_code_lock);
    return blank == MAP_FAILED ? -1 : 0;
}

void *ah_lua_mremap(void *at, size_t bytes, size_t wanted, int flags, ...)
{
    return ah_lua_heap_remap(at, bytes, wanted, flags);
}
