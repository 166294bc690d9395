/* Arguments of the kernels that fill new tensors. */
#pragma once

#include <stdint.h>

enum { AH_CREATE_THREADS = 256 };

/* start + i * step, computed from the index, as the CPU does; from `half` on counted from the end, of linspace. */
struct ah_sequence_args {
    uint64_t to;
    int64_t n, half;
    double start, step, end;
    int32_t dtype; /* enum ah_dtype */
};

/* The element in row r and column k stays where k - r is at least `least` and at most `most`; the rest becomes 0. */
struct ah_triangle_args {
    uint64_t to, from;
    int64_t lines, rows, columns, least, most;
};

/* to[i, k] = x[i] == k. */
struct ah_one_hot_args {
    uint64_t to, x;
    int64_t n, classes;
};
