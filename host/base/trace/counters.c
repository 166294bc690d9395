/* One pointer, moved once when the process finds its control block. */
#include "base/trace/counters.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/trace/time.h"

static struct ah_counters own_counters = {.loss = NAN};
struct ah_counters *ah_counters = &own_counters;

static bool stepped = true; /* since the last backward */

/* A fork is no rank: it leaves the parent's counters alone. */
static void in_child(void)
{
    own_counters = *ah_counters;
    ah_counters = &own_counters;
}

void ah_counters_move(struct ah_counters *to)
{
    *to = *ah_counters;
    ah_counters = to;
    pthread_atfork(NULL, NULL, in_child);
}

/* As far as there is room; ends with 0. */
static void counters_copy(char *to, const char *from, size_t room)
{
    size_t i = 0;
    for (; i + 1 < room && from[i]; i++)
        to[i] = from[i];
    to[i] = 0;
}

void ah_counters_begin_backward(const char *site, double loss)
{
    counters_copy(ah_counters->site, site, sizeof ah_counters->site);
    atomic_store_explicit(&ah_counters->loss, loss, memory_order_relaxed);
    atomic_store_explicit(&ah_counters->backwards, ah_counters->backwards + 1, memory_order_relaxed);
    atomic_store_explicit(&ah_counters->in_backward, 1, memory_order_relaxed);
    stepped = false;
}

void ah_counters_end_backward(void)
{
    atomic_store_explicit(&ah_counters->in_backward, 0, memory_order_relaxed);
    atomic_store_explicit(&ah_counters->node, 0, memory_order_relaxed);
}

void ah_counters_step(void)
{
    static const double share = 0.1; /* of the newest in the average */
    if (stepped)
        return;
    stepped = true;
    int64_t now = ah_now_ns(), before = atomic_load_explicit(&ah_counters->step_ns, memory_order_relaxed);
    double passed = (double)(now - before) / 1e9;
    double average = atomic_load_explicit(&ah_counters->step_time, memory_order_relaxed);
    if (before)
        atomic_store_explicit(&ah_counters->step_time, average > 0 ? average + share * (passed - average) : passed,
                              memory_order_relaxed);
    atomic_store_explicit(&ah_counters->step_ns, now, memory_order_relaxed);
    atomic_store_explicit(&ah_counters->steps, ah_counters->steps + 1, memory_order_relaxed);
}

void ah_counters_answer(const char *place)
{
    counters_copy(ah_counters->place, place, sizeof ah_counters->place);
    atomic_fetch_add(&ah_counters->answered, 1);
}
