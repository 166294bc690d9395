/* The Lua library inside the binary: a table made by scripts/embed.c, ended by a NULL name. */
#pragma once

#include <stddef.h>

/* A text, packed by zlib, and its length. */
struct ah_packed {
    const char *packed;
    size_t bytes, length;
};

struct ah_embedded {
    const char *module; /* "accelhost.nn" */
    const char *path;   /* "accelhost/nn/init.lua" */
    struct ah_packed bytecode;
};

extern const struct ah_embedded ah_embedded[];

/* The documentation of the sources, for lua/accelhost/docs. */
extern const struct ah_packed ah_docs;
/* The sources of the library, each after a line "@@ accelhost/nn/init.lua". */
extern const struct ah_packed ah_sources;
