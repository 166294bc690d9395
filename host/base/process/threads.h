/* The one OpenMP pool. Only the Lua thread enters it; helper threads (the loader's) never do. */
#ifndef AH_BASE_THREADS_H
#define AH_BASE_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>

/* Return the number of processors for this process: those of its affinity mask, at most its control groups' quota,
 * rounded up. */
int ah_cpu_count(void);

/* A set of processors. cpu_set_t alone holds 1,024 of them, and the kernel refuses a set that does not hold all. */
struct ah_affinity {
    cpu_set_t set[64];
};

/* Processors of the mask with which this process was started; may be called before the libraries' constructors. */
int ah_affinity_count(void);
/* The `part`-th (from 0) of `parts` disjoint parts of that mask; parts share processors when there are more of them. */
void ah_affinity_part(int part, int parts, struct ah_affinity *out);
/* Set the affinity of the calling thread, which its new threads and processes inherit; -1 and errno on failure. A
 * signal handler may call it. */
int ah_affinity_set(const struct ah_affinity *affinity);

/* Threads used by kernels, BLAS and oneDNN. The default is OMP_NUM_THREADS or ah_cpu_count(). */
int ah_num_threads(void);
enum { AH_MOST_THREADS = 1024 };
int ah_set_num_threads(int count); /* AH_EINVAL unless 1 <= count <= AH_MOST_THREADS */

/* Run body(context, begin, end) over [0, n) in parts whose borders are multiples of `grain`. The borders depend on
 * n, grain and the thread count only; kernels whose result depends on the borders must use fixed chunks inside. */
typedef void (*ah_range_fn)(void *context, int64_t begin, int64_t end);
void ah_parallel_for(int64_t n, int64_t grain, ah_range_fn body, void *context);

/* Start a helper thread with all signals blocked, so that other threads receive them. Returns 0 or an errno. */
int ah_helper_start(pthread_t *out, void *(*run)(void *context), void *context);

/* When a second thread pays. A kernel's work is counted in elements; below these numbers per thread, waking one costs
 * more than it saves (measured on two cores of a Zen 5 with sleeping threads). Products count multiplications instead
 * (cpu/linear/gemm.c). */
enum ah_share {
    AH_SHARE_SORT = 4096,     /* many steps per element */
    AH_SHARE_HEAVY = 8192,    /* an exponential or a comparison of windows per element */
    AH_SHARE_MIDDLE = 16384,  /* an expression, a conversion, a reduction */
    AH_SHARE_LIGHT = 32768,   /* one multiply-add, or a gathered copy */
    AH_SHARE_COPY = 65536,    /* memory moved as it is */
    AH_SHARE_STREAM = 262144, /* passes over arrays that the caches do not hold: optimizer steps */
};

static inline int ah_worth_threads(int64_t elements, enum ah_share share)
{
    return elements > (int64_t)share;
}

/* For ah_parallel_for: how many units of `elements` each make a thread's share; at least 1. */
static inline int64_t ah_grain(int64_t elements, enum ah_share share)
{
    return elements < 1 ? (int64_t)share : elements < (int64_t)share ? (int64_t)share / elements : 1;
}

#endif
