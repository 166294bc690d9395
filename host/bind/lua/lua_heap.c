/* Prefetch instructions are dropped where the TLB has no entry for their address (Zen 5), so memory is read: the lock
 * keeps it mapped meanwhile. */
#include "bind/lua/lua_heap.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

enum { SEGMENTS = 64, LINE = 64 };
#define MOST ((size_t)16 << 20) /* more evicts the first ones from a last-level cache */

static pthread_mutex_t lua_heap_lock = PTHREAD_MUTEX_INITIALIZER;
/* Memory that is mapped and readable; not all of it where there are more segments. */
static struct segment {
    uintptr_t begin, end;
} segment[SEGMENTS];
static int segments;

static void heap_add(uintptr_t begin, uintptr_t end)
{
    int i = 0;
    while (i < segments && segment[i].begin != end && segment[i].end != begin)
        i++;
    if (i == SEGMENTS)
        return;
    if (i == segments)
        segment[segments++] = (struct segment){begin, end};
    segment[i].begin = begin < segment[i].begin ? begin : segment[i].begin;
    segment[i].end = end > segment[i].end ? end : segment[i].end;
}

/* Forget [begin, end); of a segment around it the part after it too. */
static void heap_remove(uintptr_t begin, uintptr_t end)
{
    for (int i = segments - 1; i >= 0; i--) {
        if (segment[i].begin >= end || segment[i].end <= begin)
            continue;
        if (segment[i].begin < begin)
            segment[i].end = begin;
        else if (segment[i].end > end)
            segment[i].begin = end;
        else
            segment[i] = segment[--segments];
    }
}

void *ah_lua_heap_map(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
    pthread_mutex_lock(&lua_heap_lock);
    void *at = mmap(hint, bytes, protection, flags, file, offset);
    if (at != MAP_FAILED && protection & PROT_READ)
        heap_add((uintptr_t)at, (uintptr_t)at + bytes);
    pthread_mutex_unlock(&lua_heap_lock);
    return at;
}

int ah_lua_heap_unmap(void *at, size_t bytes)
{
    pthread_mutex_lock(&lua_heap_lock);
    heap_remove((uintptr_t)at, (uintptr_t)at + bytes);
    int status = munmap(at, bytes);
    pthread_mutex_unlock(&lua_heap_lock);
    return status;
}

void *ah_lua_heap_remap(void *at, size_t bytes, size_t wanted, int flags)
{
    pthread_mutex_lock(&lua_heap_lock);
    void *moved = mremap(at, bytes, wanted, flags);
    if (moved != MAP_FAILED) {
        heap_remove((uintptr_t)at, (uintptr_t)at + bytes);
        heap_add((uintptr_t)moved, (uintptr_t)moved + wanted);
    }
    pthread_mutex_unlock(&lua_heap_lock);
    return moved;
}

void ah_lua_heap_load(void)
{
    size_t left = MOST;
    pthread_mutex_lock(&lua_heap_lock);
    for (int i = 0; i < segments; i++)
        for (uintptr_t at = segment[i].begin; at < segment[i].end && left; at += LINE, left -= LINE)
            (void)*(const volatile char *)at;
    pthread_mutex_unlock(&lua_heap_lock);
}
