/* Loops that are divided among the threads of the program (thread_pool.h), and when that pays. */
#pragma once

#include <stdint.h>

/* Let the libraries (BLAS, LAPACK, oneDNN) use all threads in the calling thread's calls until the end; else they
 * run on the calling thread alone. Calls may be nested. */
void ah_library_threads_begin(void);
void ah_library_threads_end(void);

/* Run body(context, begin, end) over [0, n) in parts whose borders are multiples of `grain`, more of them than there
 * are threads. The borders depend on n, grain and the number of threads only; kernels whose result depends on the
 * borders must use fixed chunks inside. */
typedef void (*ah_range_fn)(void *context, int64_t begin, int64_t end);
void ah_parallel_for(int64_t n, int64_t grain, ah_range_fn body, void *context);

/* Thresholds from which a second thread pays. A kernel's work is counted in elements; below these numbers per thread,
 * moving data between processors costs more than it saves (measured on two cores of a Zen 4 and a Zen 5). Products
 * count multiplications instead (cpu/linear/gemm.c). */
enum ah_share {
    AH_SHARE_SORT = 4096,     /* many steps per element */
    AH_SHARE_HEAVY = 8192,    /* an exponential or a comparison of windows per element */
    AH_SHARE_MIDDLE = 16384,  /* an expression, a reduction */
    AH_SHARE_LIGHT = 32768,   /* a sum or a product, a conversion, a gathered copy */
    AH_SHARE_COPY = 65536,    /* memory moved as it is */
    AH_SHARE_STREAM = 32768,  /* passes over several arrays: optimizer steps */
};

static inline int ah_worth_threads(int64_t elements, enum ah_share share)
{
    return elements > (int64_t)share;
}

/* The same over n units of `elements` each, by several threads where there are more than one thread's share. The parts
 * are then of about the same size: their borders are multiples of an eighth of the share, or of one unit. */
void ah_parallel_units(int64_t n, int64_t elements, enum ah_share share, ah_range_fn body, void *context);

/* For ah_parallel_for: return the number of units of `elements` each in a thread's share; at least 1. */
static inline int64_t ah_grain(int64_t elements, enum ah_share share)
{
    return elements < 1 ? (int64_t)share : elements < (int64_t)share ? (int64_t)share / elements : 1;
}
