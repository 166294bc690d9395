/* Progress counters of this process, for readers outside it: `accelhost top`, a peer that waits for it, a signal
 * handler that reports the script's current line.
 *
 * The counters are stored in the rank's entry of the job's control block (comm/control/control_block.h), which other
 * processes read; without a control block in this process's own memory. Only the Lua thread writes them, by relaxed
 * stores that cost a nanosecond: each counter is read for itself. A fork of the process writes to its own counters. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { AH_COUNTERS_TEXT = 192, AH_COUNTERS_SITE = 64 };

struct ah_counters {
    _Alignas(64) atomic_int op;   /* of the op table that runs, from 1; 0: none */
    atomic_int node;              /* op whose gradient rule runs, from 1 */
    _Atomic uint64_t backwards;   /* that have begun */
    _Atomic uint64_t steps;       /* of optimizers; several between two backwards count once */
    _Atomic int64_t step_ns;      /* when the last one was, monotonic */
    _Atomic double step_time;     /* seconds from one to the next, of late */
    _Atomic double loss;          /* of the last backward; NaN before the first and for a device's tensor */
    _Atomic int64_t collective_ns; /* when the last collective was called */
    atomic_int in_backward;
    atomic_int waits;             /* for peers, in a collective */
    atomic_int collects;          /* garbage */
    char site[AH_COUNTERS_SITE];  /* the script's line that began the last backward */
    /* On SIGURG the process writes its current line here ("runs at train.lua:12"), then increments `answered`. */
    atomic_int answers;           /* it handles SIGURG */
    atomic_uint answered;
    char place[AH_COUNTERS_TEXT];
};

/* Never NULL. */
extern struct ah_counters *ah_counters;

/* Move the counters to `to`, in shared memory, with their current values. */
void ah_counters_move(struct ah_counters *to);

/* Record that a backward begins at a line of the script (`loss` may be NaN), and that it ends. */
void ah_counters_begin_backward(const char *site, double loss);
void ah_counters_end_backward(void);
/* Record an optimizer step. */
void ah_counters_step(void);
/* Write the process's current line. May be called by a signal handler. */
void ah_counters_answer(const char *place);

/* Record the running op; returns the previous one for ah_counters_leave. */
static inline int ah_counters_enter(int op)
{
    int before = atomic_load_explicit(&ah_counters->op, memory_order_relaxed);
    atomic_store_explicit(&ah_counters->op, op, memory_order_relaxed);
    return before;
}

static inline void ah_counters_leave(int before)
{
    atomic_store_explicit(&ah_counters->op, before, memory_order_relaxed);
}
