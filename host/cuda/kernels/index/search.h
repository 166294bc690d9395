/* Arguments of the searches: `found`, an unsigned 64-bit number, becomes the least index of an element that is searched
 * for, and stays as it is when there is none. */
#pragma once

#include <stdint.h>

enum { AH_SEARCH_THREADS = 256 };

struct ah_search_args {
    uint64_t at, found;
    int64_t numel;
    int64_t low, high; /* elements outside them are searched for */
};
