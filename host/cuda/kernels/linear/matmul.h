/* Arguments of the kernels that make numbers for comparing algorithms of a product, and compare their results. */
#ifndef AH_CUDA_KERNELS_MATMUL_H
#define AH_CUDA_KERNELS_MATMUL_H

#include <stdint.h>

enum { AH_MATMUL_THREADS = 256 };

/* A stack of `batch` matrices in memory, each of `lines` lines of `line` numbers, `ld` numbers apart. */
struct ah_matmul_fill_args {
    uint64_t to;
    int64_t batch, stride, lines, line, ld;
    int32_t along;   /* the depth is the place in a line, else the line */
    int32_t negates; /* the second half of the depth */
};

struct ah_matmul_compare_args {
    uint64_t a, b; /* of `count` times 16 bytes */
    int64_t count;
    uint64_t differ; /* a 32-bit word that becomes 1 where one bit is not the same */
};

#endif
