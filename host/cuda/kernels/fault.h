/* Arguments of the kernels that look for elements which an op has to refuse, and what they leave: the first of them. */
#ifndef AH_CUDA_KERNELS_FAULT_H
#define AH_CUDA_KERNELS_FAULT_H

#include <stdint.h>

enum { AH_FAULT_THREADS = 1024 };

/* In the device's memory: `ticket` 0 says that nothing was found so far. */
struct ah_fault {
    uint64_t ticket;
    int64_t at;
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
