/* The processors of this process, and the number of threads that its kernels use. */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
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
/* Move the calling thread off a processor of its mask; its mask is the same afterwards. False if it has no other. */
bool ah_affinity_leave(int cpu);
/* In a new thread of kernels, its number > 0: where its parent is bound to one processor (OMP_PROC_BIND), bind it to
 * the next ones of the mask of the process in turn. */
void ah_affinity_bind(int thread);

/* Threads used by kernels, BLAS and oneDNN; at first OMP_NUM_THREADS or ah_cpu_count(). Lua thread only. */
int ah_num_threads(void);
enum { AH_MOST_THREADS = 1024 };
int ah_set_num_threads(int count); /* AH_EINVAL unless 1 <= count <= AH_MOST_THREADS */

/* Start a helper thread with the signals of other processes blocked, so that other threads receive them; faults stay
 * unblocked, since the kernel ends the process without the fault's handler otherwise. Returns 0 or an errno. */
int ah_helper_start(pthread_t *out, void *(*run)(void *context), void *context);
