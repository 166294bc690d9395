/* Writing numbers that a kernel has among its arguments. */
#pragma once

#include <stdint.h>

enum { AH_GRAPH_WORDS = 1000, AH_GRAPH_THREADS = 256 };

struct ah_graph_write_args {
    uint64_t to;
    uint32_t count, word[AH_GRAPH_WORDS];
};
