/* Arguments of the kernels that look for elements which an op has to refuse, and what they leave: the first of them. */
#ifndef AH_CUDA_KERNELS_FAULT_H
#define AH_CUDA_KERNELS_FAULT_H

#include <stdint.h>

/* A thread looks at AH_FAULT_EACH elements at once. */
enum { AH_FAULT_THREADS = 1024, AH_FAULT_EACH = 4, AH_FAULT_BLOCKS = 512 };

/* In the device's memory: `ticket` 0 says that nothing was found so far. */
struct ah_fault {
    uint64_t ticket;
    uint64_t rest;   /* the complement of the least position of what was found; 0: none */
    uint64_t blocks; /* those that are through with the look under way */
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

#endif
