/* Arguments of the kernels that make codes of 8-bit floats. */
#pragma once

#include <stdint.h>

enum { AH_FP8_THREADS = 256 };

/* `codes` of `count` dense numbers times *scale. */
struct ah_fp8_args {
    uint64_t input, codes;
    int64_t count;
    uint64_t scale;
    uint64_t amax; /* 0, or a float that becomes at least the largest size */
    int32_t e5m2;
    int32_t wide;  /* both addresses are multiples of 16 */
};
