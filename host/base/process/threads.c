/* The affinity of the process and its number of threads. */
#include "base/process/threads.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/process/quota.h"
#include "base/status/status.h"

/* The affinity at the first call, before libgomp binds the main thread (OMP_PROC_BIND). */
static struct ah_affinity initial_affinity;
static int processors;   /* in it, 0 before the first call */
static atomic_int threads_used; /* by kernels, 0 before the first call; relaxed: it announces nothing else */

int ah_affinity_count(void)
{
    if (processors)
        return processors;
    if (sched_getaffinity(0, sizeof initial_affinity.set, initial_affinity.set))
        CPU_SET_S(0, sizeof initial_affinity.set, initial_affinity.set);
    processors = CPU_COUNT_S(sizeof initial_affinity.set, initial_affinity.set);
    return processors;
}

void ah_affinity_part(int part, int parts, struct ah_affinity *out)
{
    int count = ah_affinity_count(), seen = 0;
    *out = (struct ah_affinity){0};
    parts = parts < count ? parts : count;
    part %= parts;
    for (size_t i = 0; i < 8 * sizeof initial_affinity.set; i++) {
        if (!CPU_ISSET_S(i, sizeof initial_affinity.set, initial_affinity.set))
            continue;
        if (seen >= count * part / parts && seen < count * (part + 1) / parts)
            CPU_SET_S(i, sizeof out->set, out->set);
        seen++;
    }
}

int ah_affinity_set(const struct ah_affinity *affinity)
{
    return sched_setaffinity(0, sizeof affinity->set, affinity->set);
}

bool ah_affinity_leave(int cpu)
{
    struct ah_affinity mine = {0}, others;
    if (sched_getaffinity(0, sizeof mine.set, mine.set))
        return false;
    others = mine;
    CPU_CLR_S((size_t)cpu, sizeof others.set, others.set);
    return CPU_COUNT_S(sizeof others.set, others.set) > 0 && !ah_affinity_set(&others) && !ah_affinity_set(&mine);
}

int ah_cpu_count(void)
{
    int count = ah_affinity_count();
    double quota = ceil(ah_processor_quota(""));
    return quota >= 1 && quota < count ? (int)quota : count;
}

void ah_affinity_bind(int thread)
{
    struct ah_affinity mine = {0};
    if (sched_getaffinity(0, sizeof mine.set, mine.set) || CPU_COUNT_S(sizeof mine.set, mine.set) != 1)
        return;
    ah_affinity_part(thread, ah_affinity_count(), &mine);
    ah_affinity_set(&mine);
}

int ah_num_threads(void)
{
    int used = atomic_load_explicit(&threads_used, memory_order_relaxed);
    if (!used) {
        const char *text = getenv("OMP_NUM_THREADS");
        long number = text ? strtol(text, NULL, 10) : 0;
        used = number < 1 ? ah_cpu_count() : number > AH_MOST_THREADS ? AH_MOST_THREADS : (int)number;
        atomic_store_explicit(&threads_used, used, memory_order_relaxed);
    }
    return used;
}

int ah_set_num_threads(int count)
{
    if (count < 1 || count > AH_MOST_THREADS)
        return ah_fail(AH_EINVAL, "set_num_threads: expected 1..%d, got %d", AH_MOST_THREADS, count);
    atomic_store_explicit(&threads_used, count, memory_order_relaxed);
    return 0;
}

int ah_helper_start(pthread_t *out, void *(*run)(void *context), void *context)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = pthread_create(out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}
