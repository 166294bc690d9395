/* Arguments of the kernels that search for elements that an op must refuse, and their result: the first such
 * element. */
#pragma once

#include <stdint.h>

/* A thread reads AH_FAULT_EACH elements at once. */
enum { AH_FAULT_THREADS = 1024, AH_FAULT_EACH = 4, AH_FAULT_BLOCKS = 512 };

/* In the device's memory: `ticket` is 0 while no fault was found. */
struct ah_fault {
    uint64_t ticket;
    uint64_t rest;   /* the complement of the least position found; 0: none */
    uint64_t blocks; /* those that have completed the current check */
    union {
        int64_t integer;
        double number;
    };
};

/* Elements outside low..high that are not `other`: those are right too. */
struct ah_fault_args {
    uint64_t x, fault, ticket;
    int64_t n, low, high, other;
};
