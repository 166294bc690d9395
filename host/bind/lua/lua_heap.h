/* The memory of Lua's objects. The build of LuaJIT replaces mmap, munmap and mremap by functions that record it here
 * (lua_code.c); it is not known where LuaJIT is a shared library. Any thread. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* As mmap, munmap and mremap. */
void *ah_lua_heap_map(void *hint, size_t bytes, int protection, int flags, int file, off_t offset);
int ah_lua_heap_unmap(void *at, size_t bytes);
void *ah_lua_heap_remap(void *at, size_t bytes, size_t wanted, int flags);

/* Load the objects into the caches in the order of their addresses, before a collection visits them in another order:
 * after a training step most of its time is cache misses. */
void ah_lua_heap_load(void);
