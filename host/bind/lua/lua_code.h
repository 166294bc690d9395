/* Memory for LuaJIT's compiled code. The build of LuaJIT replaces mmap, munmap and mremap by these functions; they pass
 * requests for other memory to lua_heap.h. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* As mmap; but a request near LuaJIT's own code is served from a reserve there. Any thread. */
void *ah_lua_mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset);
void *ah_lua_mmap64(void *hint, size_t bytes, int protection, int flags, int file, off_t offset);

/* As munmap; memory of the reserve is returned to it. */
int ah_lua_munmap(void *at, size_t bytes);

/* As mremap, for memory outside of the reserve. */
void *ah_lua_mremap(void *at, size_t bytes, size_t wanted, int flags, ...);
