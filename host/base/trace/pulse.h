/* What this process does now, for whoever looks at it from outside: `accelhost top`, a peer that waits for it, a rank
 * that is asked by a signal for the line where it is.
 *
 * A pulse lies on the rank's slot of the job's board (comm/control/control_block.h), which other processes read;
 * without a board it is this process's own. Only the Lua thread writes it, by plain stores that cost a nanosecond, and
 * a fork of the process writes to a pulse of its own. */
#ifndef AH_BASE_PULSE_H
#define AH_BASE_PULSE_H

#include <stdatomic.h>
#include <stdint.h>

enum { AH_PULSE_TEXT = 192, AH_PULSE_SITE = 64 };

struct ah_pulse {
    _Alignas(64) atomic_int op;   /* of the op table that runs, from 1; 0: none */
    atomic_int node;              /* op whose gradient rule runs, from 1 */
    _Atomic uint64_t backwards;   /* that have begun */
    _Atomic uint64_t steps;       /* of optimizers: what comes between two backwards counts once */
    _Atomic int64_t step_ns;      /* when the last one was, monotonic */
    _Atomic double step_time;     /* seconds from one to the next, of late */
    _Atomic double loss;          /* of the last backward; NaN before the first, and where it lies on a device */
    _Atomic int64_t collective_ns; /* when the last collective was called */
    atomic_int in_backward;
    atomic_int waits;             /* for peers, in a collective */
    char site[AH_PULSE_SITE];     /* the script's line that began the last backward */
    /* Asked by SIGURG the process says here where it is ("runs at train.lua:12"), then counts on. */
    atomic_int answers;           /* it does so */
    atomic_uint answered;
    char place[AH_PULSE_TEXT];
};

/* Never NULL. */
extern struct ah_pulse *ah_pulse;

/* From now on the pulse is there, on shared memory; what it says so far goes along. */
void ah_pulse_move(struct ah_pulse *to);

/* A backward begins at a line of the script; `loss` may be NaN. It ends. */
void ah_pulse_begin_backward(const char *site, double loss);
void ah_pulse_end_backward(void);
/* An optimizer steps. */
void ah_pulse_step(void);
/* Say where the process is. May be called by a signal handler. */
void ah_pulse_answer(const char *place);

/* The op that runs; what ran before, to be put back. */
static inline int ah_pulse_enter(int op)
{
    int before = atomic_load_explicit(&ah_pulse->op, memory_order_relaxed);
    atomic_store_explicit(&ah_pulse->op, op, memory_order_relaxed);
    return before;
}

static inline void ah_pulse_leave(int before)
{
    atomic_store_explicit(&ah_pulse->op, before, memory_order_relaxed);
}

#endif
