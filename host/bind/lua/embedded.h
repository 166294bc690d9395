/* The Lua library inside the binary: a table made by scripts/embed.c, ended by a NULL name. */
#ifndef AH_BIND_EMBEDDED_H
#define AH_BIND_EMBEDDED_H

#include <stddef.h>

struct ah_embedded {
    const char *module; /* "accelhost.nn" */
    const char *path;   /* "accelhost/nn/init.lua" */
    const char *bytecode;
    size_t bytes;
};

extern const struct ah_embedded ah_embedded[];
/* The documentation of the sources as text in place of the bytecode, for lua/accelhost/docs. */
extern const struct ah_embedded ah_docs;
/* The sources of the library, each after a line "@@ accelhost/nn/init.lua": packed by zlib, and their length. */
extern const struct ah_embedded ah_sources;
extern const size_t ah_sources_bytes;

#endif
